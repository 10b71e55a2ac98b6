package devices

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// One directory's file being damaged takes nothing from what the other's says.
func TestADamagedFileHidesNoOther(t *testing.T) {
	damaged, whole := t.TempDir(), t.TempDir()
	for dir, text := range map[string]string{damaged: "{", whole: `{"Data":{"RegisteredDevices":{"example.com/gpu":["a"]}}}`} {
		if err := os.WriteFile(filepath.Join(dir, "kubelet_internal_checkpoint"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left := NewLeft(damaged, whole)
	if has, err := left.Has("example.com/gpu"); !has || err != nil {
		t.Errorf("has %v, error %v", has, err)
	}
	if has, err := left.Has("example.com/other"); has || err == nil {
		t.Errorf("of one that nobody names: has %v, error %v", has, err)
	}
}

func TestWhatAPluginHadRegisteredIsKnown(t *testing.T) {
	const kubelets = `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"example.com/old","DeviceIDs":{"-1":["a"]},"AllocResp":""}],"RegisteredDevices":{"example.com/gpu":["a","b"],"example.com/none":null}},"Checksum":7}`
	for name, c := range map[string]struct {
		file string
		want string // the resources that are a plugin's
		err  string
	}{
		"no kubelet was here":     {},
		"a kubelet's":             {file: kubelets, want: "example.com/gpu example.com/none"},
		"without any":             {file: `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1}`},
		"a file that is cut off":  {file: kubelets[:60], err: "remove the file"},
		"a file that is no plain": {file: "dir", err: "is not a file"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "kubelet_internal_checkpoint")
		var err error
		switch c.file {
		case "":
		case "dir":
			err = os.Mkdir(path, 0o700)
		default:
			err = os.WriteFile(path, []byte(c.file), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		left := NewLeft(t.TempDir(), dir)
		if known := left.Last(); known.Checkpoint || known.Resources != nil {
			t.Errorf("%s: %+v is known before anybody has looked", name, known)
		}
		var has []string
		for _, resource := range []v1.ResourceName{"example.com/gpu", "example.com/none", "example.com/old", "example.com/dongle"} {
			is, err := left.Has(resource)
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			if is {
				has = append(has, string(resource))
			}
		}
		if got := strings.Join(has, " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		known, listed := left.Last(), ""
		for _, resource := range known.Resources {
			listed += " " + string(resource)
		}
		if strings.TrimSpace(listed) != c.want || known.Checkpoint != (c.file != "") {
			t.Errorf("%s: %+v is known, want %q", name, known, c.want)
		}
	}
}
