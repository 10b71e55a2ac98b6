package criconfig

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A headless Service of that name gives no address; whoever may make Services would take
// the apiserver's away from the pods of the namespace.
func TestAHeadlessServiceDoesNotHideTheApiserver(t *testing.T) {
	for own, want := range map[string]string{v1.ClusterIPNone: "10.96.0.1", "": "10.96.0.1", "10.1.1.1": "10.1.1.1"} {
		f := newFixture(t)
		svc := func(ip string) []*v1.Service {
			return []*v1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: v1.ServiceSpec{ClusterIP: ip, Ports: []v1.ServicePort{{Port: 443}}}}}
		}
		f.services["ns"], f.services["default"] = svc(own), svc("10.96.0.1")
		got, err := f.container(t, pod(v1.Container{Image: "img:1"}))
		if err != nil {
			t.Fatal(err)
		}
		if host := variable(got, "KUBERNETES_SERVICE_HOST"); host != want {
			t.Errorf("beside a service with the address %q the apiserver's is %q, want %q", own, host, want)
		}
	}
}

func TestServicesAreNotWaitedForWithoutAnApiserver(t *testing.T) {
	f := newFixture(t)
	f.svcErr = errors.New("away")
	p := pod(v1.Container{})
	if _, err := f.container(t, p); err == nil {
		t.Error("a pod of the apiserver was built without its services")
	}
	p.Annotations["kubernetes.io/config.source"] = "file"
	if _, err := f.container(t, p); err != nil {
		t.Errorf("static pod: %v", err)
	}
	delete(p.Annotations, "kubernetes.io/config.source")
	f.builder.cfg.Standalone = true
	if _, err := f.container(t, p); err != nil {
		t.Errorf("standalone: %v", err)
	}
}

func TestEnvironmentFilesCannotBeTraps(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	f.volumes["e"] = dir
	for name, create := range map[string]func(string) error{
		"good": func(p string) error { return os.WriteFile(p, []byte("K='v'\n"), 0o600) },
		"link": func(p string) error { return os.Symlink("/etc/passwd", p) },
		"pipe": func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"huge": func(p string) error { return os.WriteFile(p, make([]byte, maxEnvFile+1), 0o600) },
		"dir":  func(p string) error { return os.Mkdir(p, 0o700) },
		// Of no driver: who opens it is told so. To open a watchdog restarts the machine.
		"device": func(p string) error { return syscall.Mknod(p, syscall.S_IFCHR|0o666, 250<<8|250) },
	} {
		if err := create(filepath.Join(dir, name)); name == "device" && errors.Is(err, syscall.EPERM) {
			continue // not as root
		} else if err != nil {
			t.Fatal(err)
		}
		text, found, err := f.builder.envFile(pod(v1.Container{}), "e", name)
		if name == "good" && (err != nil || !found || text != "K='v'\n") {
			t.Errorf("good: %q %v %v", text, found, err)
		}
		if name != "good" && err == nil {
			t.Errorf("%s was read: %.20q", name, text)
		}
		if name == "device" && !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("the device was opened: %v", err)
		}
	}
	if _, found, err := f.builder.envFile(pod(v1.Container{}), "e", "absent"); found || err != nil {
		t.Errorf("absent: %v, %v", found, err)
	}
}

// TestAnEnvironmentFileOfAVolumeThatNoContainerMountsIsAnError, as it is in a kubelet: the volume
// lies nowhere.
func TestAnEnvironmentFileOfAVolumeThatNoContainerMountsIsAnError(t *testing.T) {
	f := newFixture(t)
	f.volumes["e"] = ""
	if _, found, err := f.builder.envFile(pod(v1.Container{}), "e", "f"); found || err == nil || err.Error() != `volume "e" is not set up` {
		t.Errorf("found: %v, %v", found, err)
	}
}
