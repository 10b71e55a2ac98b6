package gateway

import (
	"bufio"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatASessionIsAskedForWithStandsInItsPath: an apiserver sends the body of a request
// for a session on, of whoever may exec into one pod. One that is read as a form is held
// in memory, or in a file that stays on the node's disk, without any bound on either.
func TestWhatASessionIsAskedForWithStandsInItsPath(t *testing.T) {
	files := t.TempDir()
	t.Setenv("TMPDIR", files)
	h := newHouse(t)
	s := h.start(t, nil)
	post := func(path, contentType, body string) int {
		conn := knock(t, s.Addresses()["secure"], fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n"+
			"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
			path, contentType, len(body), body))
		defer conn.Close()
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	upload := "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n" + strings.Repeat("x", 50<<20) + "\r\n--b--\r\n"
	for _, session := range []string{"exec", "attach"} {
		path := "/" + session + "/ns/nosuch/c?command=cat"
		if got := post(path+"&output=1", "multipart/form-data; boundary=b", upload); got != http.StatusNotFound {
			t.Errorf("%s with a body: %d, want it to be as without", session, got)
		}
		if left, _ := filepath.Glob(filepath.Join(files, "*")); len(left) > 0 {
			t.Errorf("%s: what was sent lies on the disk: %v", session, left)
		}
		if got := post(path, "application/x-www-form-urlencoded", "output=1"); got != http.StatusBadRequest {
			t.Errorf("%s with its parameters in the body: %d", session, got)
		}
	}
}

// TestALongCommandOfRunStandsInThePath, where it counts among the long requests.
func TestALongCommandOfRunStandsInThePath(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	for bytes, want := range map[int]int{longRequest / 2: http.StatusOK, longRequest: http.StatusBadRequest} {
		body := "cmd=echo+" + strings.Repeat("+", bytes)
		conn := knock(t, s.Addresses()["secure"], fmt.Sprintf("POST /run/ns/p/c HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n"+
			"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if conn.Close(); res.StatusCode != want {
			t.Errorf("a form of %d bytes: %d, want %d", len(body), res.StatusCode, want)
		}
	}
}
