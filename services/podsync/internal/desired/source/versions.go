package source

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// versions notices that the apiserver's data went back: that etcd was restored from an
// older state. Only the reflector's goroutine calls it.
type versions struct {
	// seen is the last version that the reflector went on from, told the same once it was
	// told that the data are older.
	seen, told string
	restored   func(error)
}

// saw takes in what version the reflector goes on from; it is none when it wants any.
func (v *versions) saw(version string) {
	if version != "" && version != "0" && version != v.seen {
		v.seen, v.told = version, ""
	}
}

// listed takes in the version of a new list. While an apiserver starts and refuses much,
// the reflector may ask for one without having heard of the version of now.
func (v *versions) listed(now string) {
	if order, err := resourceversion.CompareResourceVersion(now, v.seen); err == nil && order < 0 {
		v.wentBack(fmt.Errorf("version %s was seen, and the apiserver's data are at %s: etcd was restored", v.seen, now))
	}
}

// wentBack tells that the data are older than seen, once.
func (v *versions) wentBack(err error) {
	if v.seen != v.told {
		v.told = v.seen
		v.restored(err)
	}
}
