package criconfig

import (
	"fmt"
	"testing"
)

func TestTheUserOfAnImageIsAskedForOnce(t *testing.T) {
	f := newFixture(t)
	for range 3 {
		if user, err := f.builder.imageUser(t.Context(), "sha256:1"); err != nil || user.UID == nil || *user.UID != 65534 {
			t.Fatalf("%+v, %v", user, err)
		}
	}
	if f.asked != 1 {
		t.Errorf("asked %d times", f.asked)
	}
	f.image = nil
	if _, err := f.builder.imageUser(t.Context(), "sha256:2"); err == nil {
		t.Error("an image that is not present has a user")
	}
}

func TestTheUsersThatAreKeptAreBounded(t *testing.T) {
	f := newFixture(t)
	for i := range 3 * mostUsers {
		if _, err := f.builder.imageUser(t.Context(), fmt.Sprint("sha256:", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(f.builder.users.byRef); n > mostUsers {
		t.Errorf("%d are kept", n)
	}
}
