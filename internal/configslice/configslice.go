// Package configslice says which services use a field of the configuration, what
// differs between two configurations and for whom, and what cannot change while a node
// runs. It owns the one list of owners that each field has; it must never read a file
// or look at the host.
package configslice

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/service"
)

// Fields are values as JSON by the fields' paths, as kubeletconfig.Loaded.Fields gives them.
type Fields map[string]string

// Owners are the services that use a field, in the order of service.ServersFirst; none for a
// field that has no effect, or that only loading uses. False: there is no such field.
func Owners(path string) ([]string, bool) {
	effect, known := Effects()[path]
	return ownersIn(effect), known
}

// Effects are what fields do, by their paths, each feature gate as one of its own.
func Effects() map[string]kubeletconfig.Effect {
	fields, _, gates := kubeletconfig.Effects()
	for name, effect := range gates {
		fields[kubeletconfig.GatePrefix+name] = effect
	}
	return fields
}

func ownersIn(effect kubeletconfig.Effect) []string {
	if effect.State != kubeletconfig.Used {
		return nil
	}
	words := strings.Split(effect.Who, ", ")
	if slices.Contains(words, "all") {
		return service.ServersFirst()
	}
	return slices.DeleteFunc(service.ServersFirst(), func(s string) bool { return !slices.Contains(words, s) })
}

// Checksum is that of the fields that a service uses.
func Checksum(fields Fields, name string) string {
	effects := Effects()
	sum := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains(ownersIn(effects[path]), name) {
			fmt.Fprintf(sum, "%s=%s\n", path, fields[path])
		}
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// WholeChecksum is that of all fields.
func WholeChecksum(fields Fields) string {
	sum := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		fmt.Fprintf(sum, "%s=%s\n", path, fields[path])
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// Change is a field whose value is another.
type Change struct {
	// Path is the field's in JSON.
	Path string `json:"field"`
	// Old and New are its values as JSON; what may be secret is masked.
	Old string `json:"old"`
	New string `json:"new"`
	// Owners are the services that use it, and are started again for it unless it is InPlace.
	Owners []string `json:"services,omitempty"`
	// InPlace says that they take it while they run.
	InPlace bool `json:"inPlace,omitempty"`
	// Refused says why it cannot change while the node runs, and what to do; empty when
	// it can.
	Refused string `json:"refused,omitempty"`
}

// String is "field: old → new".
func (c Change) String() string { return fmt.Sprintf("%s: %s → %s", c.Path, c.Old, c.New) }

// masked is shown for values that may be secret.
const masked = `"<masked>"`

// withoutSecret is a URL as JSON without its password and query: changes stand in events.
func withoutSecret(value string) string {
	var text string
	if json.Unmarshal([]byte(value), &text) != nil {
		return masked
	}
	return `"` + kubeletconfig.ShownURL(text) + `"`
}

// Difference lists the fields whose values differ, by path.
func Difference(before, after Fields) []Change {
	effects := Effects()
	fixed, inPlace := Fixed(), InPlace()
	var out []Change
	for _, path := range slices.Sorted(maps.Keys(effects)) {
		if before[path] == after[path] {
			continue
		}
		change := Change{Path: path, Old: before[path], New: after[path], Owners: ownersIn(effects[path]), Refused: fixed[path], InPlace: slices.Contains(inPlace, path)}
		switch path {
		case "staticPodURLHeader":
			change.Old, change.New = masked, masked
		case "staticPodURL":
			change.Old, change.New = withoutSecret(change.Old), withoutSecret(change.New)
		}
		out = append(out, change)
	}
	if slices.ContainsFunc(out, func(c Change) bool { return strings.HasPrefix(c.Path, kubeletconfig.GatePrefix) }) {
		// The gates themselves say it.
		out = slices.DeleteFunc(out, func(c Change) bool { return c.Path == "featureGates" })
	}
	return out
}

// OwnersOf are the services that any of the changes concerns, in the order of Services.
func OwnersOf(changes []Change) []string {
	return slices.DeleteFunc(service.ServersFirst(), func(s string) bool {
		return !slices.ContainsFunc(changes, func(c Change) bool { return slices.Contains(c.Owners, s) })
	})
}

// RestartsOf are the services that have to start again for a change, in the order of
// Services.
func RestartsOf(changes []Change) []string {
	return OwnersOf(slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return c.InPlace }))
}

// InPlace are the fields that all their owners take while they run.
func InPlace() []string {
	return []string{
		"containerLogMaxFiles", "containerLogMaxSize", "eventBurst", "eventRecordQPS",
		"imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "imageMaximumGCAge", "imageMinimumGCAge",
		"logging.verbosity",
	}
}

// Refusal is an error that names every change that a running node cannot take, with
// the reason and what to do; nil when there is none.
func Refusal(changes []Change) error {
	var lines []string
	for _, c := range changes {
		if c.Refused != "" {
			lines = append(lines, fmt.Sprintf("%s: %s", c, c.Refused))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("cannot change while the node runs: %s", strings.Join(lines, "; "))
}

// Texts are the changes, a text for each.
func Texts(changes []Change) []string {
	out := make([]string, 0, len(changes))
	for _, c := range changes {
		out = append(out, c.String())
	}
	return out
}
