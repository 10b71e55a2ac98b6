package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// documentFields is what the kubelet 1.36 has in its documents for a node with
// one pod on this kind of machine, one "document field" per line, written by
// TestTheDocumentsHaveWhatTheKubeletsHave on the kubelet.
const documentFields = "testdata/documents.fields"

// reads tells how each document is taken apart into what must be there.
var reads = map[string]func(string) ([]string, error){
	"/pods":             jsonFields,
	"/runningpods/":     jsonFields,
	"/configz":          jsonFields,
	"/flagz":            lineFields(regexp.MustCompile(`^[a-zA-Z][\w.-]*`)),
	"/statusz":          lineFields(regexp.MustCompile(`^[a-zA-Z]+( [a-zA-Z]+)*`)),
	"/healthz?verbose":  lineFields(regexp.MustCompile(`^.+`)),
	"/metrics/cadvisor": familyFields,
	"/metrics/resource": familyFields,
	"/metrics/probes":   familyFields,
	"/metrics/slis":     familyFields,
}

// notHere is what the kubelet's documents have and ours have not, and why.
var notHere = map[string]string{
	"/configz .kubeletconfig.tlsCertFile":                                                            "the pair that a node makes for itself in --cert-dir is not configuration",
	"/configz .kubeletconfig.tlsPrivateKeyFile":                                                      "as tlsCertFile",
	"/metrics/cadvisor container_cpu_load_average_10s gauge container,id,image,name,namespace,pod":   "the kubelet never reads it, it is always 0",
	"/metrics/cadvisor container_cpu_load_d_average_10s gauge container,id,image,name,namespace,pod": "as container_cpu_load_average_10s",
	"/metrics/cadvisor container_tasks_state gauge container,id,image,name,namespace,pod,state":      "as container_cpu_load_average_10s",
}

func TestTheDocumentsHaveWhatTheKubeletsHave(t *testing.T) {
	h := build(t, plan{supervised: true})
	p := webApp("web")
	c := &p.Spec.Containers[0]
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("200Mi"), corev1.ResourceCPU: resource.MustParse("500m")}
	c.LivenessProbe = c.ReadinessProbe.DeepCopy()
	h.create(p)
	h.waitReady("web", time.Minute)
	if os.Getenv("POLYLET_WRITE_FIELDS") != "" {
		time.Sleep(30 * time.Second) // until the kubelet's cAdvisor has looked around
		got, err := h.documentFields()
		h.must(err)
		h.must(os.WriteFile(documentFields, []byte(strings.Join(got, "\n")+"\n"), 0o644))
		return
	}
	raw, err := os.ReadFile(documentFields)
	h.must(err)
	wanted := strings.Split(strings.TrimSpace(string(raw)), "\n")
	h.eventually(time.Minute, "the documents have all that the kubelet's have", func() error {
		got, err := h.documentFields()
		errs := []error{err}
		for _, line := range wanted {
			reason, known := notHere[line]
			switch there := slices.Contains(got, line); {
			case there && known:
				errs = append(errs, fmt.Errorf("there, though notHere says %q: %s", reason, line))
			case !there && !known:
				errs = append(errs, fmt.Errorf("missing: %s", line))
			}
		}
		return errors.Join(errs...)
	})
}

// documentFields takes all documents apart.
func (h *house) documentFields() ([]string, error) {
	h.Helper()
	var out []string
	for _, path := range slices.Sorted(maps.Keys(reads)) {
		body, err := h.nodeAPI(path)
		if err != nil {
			return nil, err
		}
		fields, err := reads[path](body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %.300s", path, err, body)
		}
		for _, field := range fields {
			out = append(out, path+" "+field)
		}
	}
	return out, nil
}

// jsonFields lists the paths of all values. Who wrote what of an object is left
// out: it is the writers' business.
func jsonFields(body string) ([]string, error) {
	var document any
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	walkFields("", document, func(path string) {
		if !strings.Contains(path, ".managedFields") {
			seen[path] = true
		}
	})
	return slices.Sorted(maps.Keys(seen)), nil
}

// lineFields lists what matches at the beginning of each line.
func lineFields(match *regexp.Regexp) func(string) ([]string, error) {
	return func(body string) ([]string, error) {
		var out []string
		for line := range strings.Lines(body) {
			if found := match.FindString(strings.TrimSpace(line)); found != "" {
				out = append(out, found)
			}
		}
		return out, nil
	}
}

// familyFields lists the families with their types and the names of their labels.
func familyFields(body string) ([]string, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(families)) {
		labels := map[string]bool{}
		for _, m := range families[name].Metric {
			for _, l := range m.Label {
				labels[l.GetName()] = true
			}
		}
		out = append(out, fmt.Sprintf("%s %s %s", name, strings.ToLower(families[name].GetType().String()), strings.Join(slices.Sorted(maps.Keys(labels)), ",")))
	}
	return out, nil
}
