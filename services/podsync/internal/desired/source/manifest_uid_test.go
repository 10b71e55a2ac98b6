package source

import (
	"strings"
	"testing"
	"time"
)

// Directories have the name of a UID, and go with it.
func TestAUIDOfTheManifestIsNoPath(t *testing.T) {
	decoder, err := newDecoder()
	if err != nil {
		t.Fatal(err)
	}
	finished := func(uid string) error {
		pod, _, err := decoder.decode([]byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "` + uid + `"},
			"spec": {"containers": [{"name": "c", "image": "i"}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		return finish(pod, origin{node: "n", src: File, path: "/m/p.yaml", seen: time.Now()})
	}
	for _, uid := range []string{"../../../etc", "..", ".", "/etc", "a/b", "a b", "-x", strings.Repeat("a", 129)} {
		if err := finished(uid); err == nil || !strings.Contains(err.Error(), "metadata.uid") {
			t.Errorf("%q: %v", uid, err)
		}
	}
	for _, uid := range []string{"", "0b1c63b6-0000-4000-8000-0123456789ab", "686ce0abd020f0aacfa5f8ebad781d83", "kube_vip.1"} {
		if err := finished(uid); err != nil {
			t.Errorf("%q: %v", uid, err)
		}
	}
}
