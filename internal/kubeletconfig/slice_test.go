package kubeletconfig

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// sliceOf hands a configuration over in a file and returns the flag that names it.
func sliceOf(t *testing.T, path string, s *Slice) string {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return "--config-slice=" + path
}

const sampleText = `maxPods: 9007199
evictionHard: {memory.available: 7Mi}
mergeDefaultEvictionSettings: true
registerWithTaints: []
clusterDNS: [10.0.0.10]
staticPodPath: manifests
staticPodURLHeader: {A: [secret]}
featureGates: {EventedPLEG: true}
unknownField: 1
logging: {verbosity: 3}
`

func TestASliceLoadsAsTheFilesThatItWasMadeOf(t *testing.T) {
	for name, text := range map[string]string{"much": sampleText, "nothing": "", "emptied": "evictionHard: {}\nenforceNodeAllocatable: []\n"} {
		dir := t.TempDir()
		whole := mustLoad(t, "--config="+write(t, dir, "c.yaml", header+text), "--event-qps=7", "--hostname-override=n", "--")
		args := whole.Args // behind which come more
		flag := sliceOf(t, filepath.Join(dir, "slice.json"), NewSlice(whole, 4, "sha256:x", true))
		got := mustLoad(t, append(slices.Clone(args), flag)...)
		if !maps.Equal(got.Fields(), whole.Fields()) {
			t.Errorf("%s:\n%v\nwant\n%v", name, got.Fields(), whole.Fields())
		}
		if !maps.Equal(got.Origins(), whole.Origins()) {
			t.Errorf("%s: set by %v, want %v", name, got.Origins(), whole.Origins())
		}
		if !slices.Equal(got.WithoutEffect(), whole.WithoutEffect()) {
			t.Errorf("%s: without effect %v, want %v", name, got.WithoutEffect(), whole.WithoutEffect())
		}
		generation, checksum := got.Runs()
		if none, empty := whole.Runs(); generation != 4 || checksum != "sha256:x" || none != 0 || empty != "" {
			t.Errorf("%s: generation %d, checksum %s", name, generation, checksum)
		}
		document, err := OfDocument(args, whole.SecretCopyJSON(), whole.Origins(), "")
		if err != nil || !maps.Equal(document.Fields(), whole.Fields()) {
			t.Errorf("%s: of its document: %v", name, err)
		}
	}
}

func TestASliceThatIsNotForSecretsHasNone(t *testing.T) {
	whole := mustLoad(t, "--config="+write(t, t.TempDir(), "c.yaml", header+sampleText))
	for secret, want := range map[bool]bool{true: true, false: false} {
		raw, err := json.Marshal(NewSlice(whole, 1, "x", secret))
		if err != nil || strings.Contains(string(raw), `"secret"`) != want {
			t.Errorf("secret %v: %v %s", secret, err, raw)
		}
	}
}

func TestADamagedSliceIsRefusedByName(t *testing.T) {
	dir := t.TempDir()
	whole := mustLoad(t)
	path := filepath.Join(dir, "slice.json")
	for name, spoil := range map[string]func(*Slice){
		"document": func(s *Slice) { s.Document = json.RawMessage(strings.Replace(string(s.Document), "110", "111", 1)) },
		"none":     func(s *Slice) { *s = Slice{} },
		"no count": func(s *Slice) { s.Generation = 0 },
	} {
		s := NewSlice(whole, 1, "x", false)
		spoil(s)
		_, err := Load([]string{sliceOf(t, path, s)})
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load([]string{"--config-slice=" + write(t, dir, "half.json", `{"generation": 1, "docu`)}); err == nil || !strings.Contains(err.Error(), "half.json") {
		t.Errorf("half: %v", err)
	}
}

func TestAServiceShowsWhatChangedForOthersAndNotWhatItDoesNotRunYet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slice.json")
	first := mustLoad(t, sliceOf(t, path, NewSlice(mustLoad(t, "--max-pods=7"), 1, "own-1", false)))
	if first.Current() != first && first.Current().Config.MaxPods != 7 {
		t.Error("before any change")
	}
	sliceOf(t, path, NewSlice(mustLoad(t, "--max-pods=8"), 2, "own-1", false))
	got := first.Current()
	if generation, _ := got.Runs(); got.Config.MaxPods != 8 || generation != 2 {
		t.Errorf("another service's field: %d of generation %d", got.Config.MaxPods, generation)
	}
	sliceOf(t, path, NewSlice(mustLoad(t, "--max-pods=9"), 3, "own-2", false))
	if got := first.Current(); got.Config.MaxPods != 8 {
		t.Errorf("its own field, which it does not run yet: %d", got.Config.MaxPods)
	}
	if plain := mustLoad(t); plain.Current() != plain {
		t.Error("without slices there is one configuration")
	}
}

func TestWhatAServiceTakesWhileItRunsIsWhatItRunsWith(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slice.json")
	first := mustLoad(t, sliceOf(t, path, NewSlice(mustLoad(t, "--max-pods=7"), 1, "own-1", false)))
	if next, err := first.Next(); next != nil || err != nil || first.Superseded() {
		t.Errorf("nothing else was handed over: %v, %v", next, err)
	}
	sliceOf(t, path, NewSlice(mustLoad(t, "--max-pods=8"), 2, "own-2", false))
	next, err := first.Next()
	if err != nil || next == nil || next.Config.MaxPods != 8 || !first.Superseded() {
		t.Fatalf("what is next: %v, %v", next, err)
	}
	first.Take(next)
	if generation, checksum := first.Runs(); generation != 2 || checksum != "own-2" || first.Superseded() {
		t.Errorf("it runs with generation %d, checksum %s", generation, checksum)
	}
	if got := first.Current(); got.Config.MaxPods != 8 {
		t.Errorf("it shows %d pods", got.Config.MaxPods)
	}
	sliceOf(t, path, NewSlice(mustLoad(t, "--max-pods=7"), 3, "own-1", false)) // and back
	if next, err = first.Next(); err != nil || next == nil || next.Config.MaxPods != 7 {
		t.Fatalf("the way back: %v, %v", next, err)
	}
	write(t, filepath.Dir(path), "slice.json", "{")
	if next, err := first.Next(); next != nil || err != nil {
		t.Errorf("half a slice: %v, %v", next, err)
	}
}

func TestAShownDocumentHasTheFieldsOfTheConfigurationThatItShows(t *testing.T) {
	for name, text := range map[string]string{"much": strings.Replace(sampleText, "[secret]", "['<masked>']", 1), "nothing": "", "emptied": "evictionHard: {}\nenforceNodeAllocatable: []\ncgroupsPerQOS: false\n"} {
		whole := mustLoad(t, "--config="+write(t, t.TempDir(), "c.yaml", header+text))
		got, err := ShownFields(whole.ConfigzJSON())
		if err != nil || !maps.Equal(got, whole.Fields()) {
			t.Errorf("%s: %v\n%v\nwant\n%v", name, err, got, whole.Fields())
		}
	}
}

func TestOneThatIsFollowedNeedNotBeThereYet(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "slice.json")
	args := []string{"--config=" + write(t, dir, "c.yaml", header+"maxPods: 7\n"), "--config-slice=" + path}
	if _, err := load(args, logr.Discard()); err == nil {
		t.Error("one that has to be there need not be")
	}
	l := mustLoad(t, append(args, "--follow-config-slice")...)
	if l.Handed() || l.Config.MaxPods != 7 {
		t.Errorf("it reads %d pods", l.Config.MaxPods)
	}
	if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(append(args, "--follow-config-slice"), logr.Discard()); err == nil {
		t.Error("a damaged one is read over")
	}
}
