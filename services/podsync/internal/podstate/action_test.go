package podstate

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

func TestAnImageVolumesKeyIsNoContainersName(t *testing.T) {
	key := VolumeKey("data")
	if errs := content.IsDNS1123Label(key); len(errs) == 0 {
		t.Errorf("%q may be the name of a container too", key)
	}
	if VolumeKey("other") == key {
		t.Error("two volumes have one key")
	}
}
