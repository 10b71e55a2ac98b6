package listen

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
)

func TestOfWhatNetHTTPSaysALineInAWhileIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		log := errorLog(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
		for range 100 {
			log.Print("http2: received GOAWAY")
		}
		log.Print("http: panic serving 127.0.0.1:1: oh")
		time.Sleep(sayLineAgain)
		log.Print("http2: again")
		if len(lines) != 3 || !strings.Contains(lines[1], "oh") || !strings.Contains(lines[2], `"leftOut"=99`) {
			t.Errorf("%d lines: %s", len(lines), strings.Join(lines, "\n"))
		}
	})
}
