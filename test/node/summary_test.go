package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// summaryFields are the fields that /stats/summary of the kubelet 1.36 has for
// a node with one pod on this kind of machine; what differs between kernels
// (pressure) is left out. testdata/summary.fields was written by this test on
// the kubelet.
const summaryFields = "testdata/summary.fields"

func TestTheSummaryHasTheKubeletsFields(t *testing.T) {
	h := build(t, plan{})
	p := webApp("web")
	c := &p.Spec.Containers[0]
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("200Mi")}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	h.create(p)
	h.waitReady("web", time.Minute)
	if os.Getenv("POLYLET_WRITE_FIELDS") != "" {
		time.Sleep(90 * time.Second) // the kubelet measures volumes once a minute
		got, err := h.summaryFields()
		h.must(err)
		h.must(os.WriteFile(summaryFields, []byte(strings.Join(got, "\n")+"\n"), 0o644))
		return
	}
	want, err := os.ReadFile(summaryFields)
	h.must(err)
	h.eventually(3*time.Minute, "the summary has every field of the kubelet's", func() error {
		got, err := h.summaryFields()
		errs := []error{err}
		for _, field := range strings.Fields(string(want)) {
			if !slices.Contains(got, field) {
				errs = append(errs, fmt.Errorf("no %s", field))
			}
		}
		return errors.Join(errs...)
	})
}

// summaryFields lists the paths of all values in the summary. Elements of lists
// are told apart by their names.
func (h *house) summaryFields() ([]string, error) {
	h.Helper()
	body, err := h.nodeAPI("/stats/summary")
	if err != nil {
		return nil, err
	}
	var document any
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	walkFields("", document, func(path string) { seen[path] = true })
	var out []string
	for path := range seen {
		out = append(out, path)
	}
	slices.Sort(out)
	return out, nil
}

func walkFields(path string, value any, found func(string)) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if key != "psi" && key != "io" {
				walkFields(path+"."+key, inner, found)
			}
		}
	case []any:
		for _, inner := range v {
			name := ""
			if object, ok := inner.(map[string]any); ok {
				name, _ = object["name"].(string)
				if name == "" {
					name, _ = object["type"].(string) // of a condition
				}
			}
			// Interfaces are the machine's, whatever they are called.
			if strings.HasSuffix(path, ".interfaces") || strings.Contains(name, "kube-api-access") {
				name = ""
			}
			walkFields(path+"["+name+"]", inner, found)
		}
	case nil:
	default:
		found(path)
	}
}
