package configslice

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/service"
)

func fieldsOf(t *testing.T, text string, args ...string) Fields {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := kubeletconfig.Load(append([]string{"--config=" + file}, args...))
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Fields()
}

// TestEveryFieldHasOneListOfOwners: each word in it is a service, and no used field is
// without one but those that only loading uses.
func TestEveryFieldHasOneListOfOwners(t *testing.T) {
	effects := Effects()
	fields := fieldsOf(t, "")
	if len(fields) < 120 {
		t.Fatalf("only %d fields", len(fields))
	}
	for path := range fields {
		owners, known := Owners(path)
		if !known {
			t.Errorf("%s is no field of the lists", path)
		}
		if effects[path].State == kubeletconfig.Used && len(owners) == 0 && effects[path].Who != "loading" {
			t.Errorf("%s is used by %q, which is no service", path, effects[path].Who)
		}
	}
	for path, effect := range effects {
		if strings.Contains(effect.Who, "polylet run") && Fixed()[path] == "" {
			t.Errorf("%s is used by polylet run, which is not started again for a change: refuse it in fixed.go", path)
		}
	}
	if _, known := Owners("maxPodz"); known {
		t.Error("a field that is not there is known")
	}
	for path := range Fixed() {
		if _, known := Owners(path); !known {
			t.Errorf("%s cannot change and is no field", path)
		}
	}
}

func TestAChangeConcernsTheOwnersOfItsFieldsAndNoOther(t *testing.T) {
	before := fieldsOf(t, "")
	for text, want := range map[string]string{
		"maxPods: 7\n":                            "podsync nodestatus",
		"containerLogMaxSize: 1Mi\n":              "podsync",
		"volumeStatsAggPeriod: 7s\n":              "stats",
		"healthzPort: 1\n":                        "gateway",
		"nodeLeaseDurationSeconds: 41\n":          "nodestatus",
		"logging: {verbosity: 4}\n":               "podsync stats nodestatus probes gateway",
		"memoryThrottlingFactor: 0.8\n":           "podsync",
		"cpuManagerReconcilePeriod: 11s\n":        "",
		"kernelMemcgNotification: true\n":         "stats",
		"evictionHard: {}\n":                      "nodestatus",
		"registerWithTaints: []\n":                "",
		"featureGates: {EnvFiles: false}\n":       "podsync",
		"featureGates: {ComponentFlagz: false}\n": "gateway",
		"featureGates: {InPlacePodVerticalScalingInitContainers: false, EnvFiles: true}\n":         "podsync nodestatus",
		"featureGates: {EnvFiles: true}\n":                                                         "", // as it is
		"featureGates: {RestartAllContainersOnContainerExits: false, AllowDNSOnlyNodeCSR: true}\n": "podsync nodestatus",
		"cgroupDriver: systemd\nport: 9\n":                                                         "podsync stats nodestatus gateway",
	} {
		after := fieldsOf(t, text)
		changes := Difference(before, after)
		if got := strings.Join(OwnersOf(changes), " "); got != want {
			t.Errorf("%q concerns %q, want %q: %v", text, got, want, changes)
		}
		for _, name := range service.ServersFirst() {
			same := Checksum(before, name) == Checksum(after, name)
			if same == slices.Contains(strings.Fields(want), name) {
				t.Errorf("%q: the checksum of %s is the same: %v", text, name, same)
			}
		}
		if same := WholeChecksum(before) == WholeChecksum(after); same != (len(changes) == 0) {
			t.Errorf("%q: the checksum of all is the same: %v, changes %v", text, same, changes)
		}
	}
}

func TestWhatARunningNodeCannotChangeIsRefusedWithItsMend(t *testing.T) {
	before := fieldsOf(t, "")
	err := Refusal(Difference(before, fieldsOf(t, "cgroupDriver: systemd\nmaxPods: 7\n")))
	for _, want := range []string{`cgroupDriver: "cgroupfs" → "systemd": the cgroups of running pods`, "drain the node"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "maxPods") {
		t.Errorf("what can change is refused: %v", err)
	}
	if err := Refusal(Difference(before, fieldsOf(t, "maxPods: 7\n"))); err != nil {
		t.Error(err)
	}
}

func TestSecretsAreNoPartOfAChangesText(t *testing.T) {
	changes := Difference(fieldsOf(t, "staticPodURLHeader: {A: [secret]}\n"), fieldsOf(t, "staticPodURLHeader: {A: [hidden]}\n"))
	text := strings.Join(Texts(changes), "\n")
	if len(changes) != 1 || strings.Contains(text, "secret") || strings.Contains(text, "hidden") || !strings.HasPrefix(text, "staticPodURLHeader: ") {
		t.Errorf("%q", text)
	}
}

func TestAFlagGoesBeforeTheFile(t *testing.T) {
	if changes := Difference(fieldsOf(t, "maxPods: 7\n", "--max-pods=9"), fieldsOf(t, "maxPods: 8\n", "--max-pods=9")); len(changes) > 0 {
		t.Errorf("a change that a flag hides: %v", changes)
	}
}

func TestAPasswordInAURLIsNotShown(t *testing.T) {
	before, after := fieldsOf(t, "staticPodURL: https://me:first@pods.example/a\n"), fieldsOf(t, "staticPodURL: https://me:second@pods.example/a?token=third\n")
	changes := Difference(before, after)
	if len(changes) != 1 || changes[0].Path != "staticPodURL" {
		t.Fatalf("%+v", changes)
	}
	text := changes[0].String() + Refusal(changes).Error()
	for _, secret := range []string{"first", "second", "third"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q stands in %s", secret, text)
		}
	}
	if !strings.Contains(text, "pods.example/a") {
		t.Errorf("it is not to be recognised: %s", text)
	}
}
