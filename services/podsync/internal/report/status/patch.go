package status

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// The patch says everything that the node owns, not a difference: it is right
// whatever the object's status is, so no GET comes before it, and repeating it
// changes nothing. Strategic merge leaves what it does not name.
type patchDocument struct {
	Metadata patchMetadata `json:"metadata"`
	Status   patchStatus   `json:"status"`
}

type patchMetadata struct {
	UID types.UID `json:"uid"` // the apiserver refuses another object of the name
}

// patchStatus has no omitempty where an absent value must clear the old one:
// null removes a field.
type patchStatus struct {
	ObservedGeneration int64       `json:"observedGeneration,omitempty"`
	Phase              v1.PodPhase `json:"phase,omitempty"`
	Conditions         []any       `json:"conditions,omitempty"`
	Message            *string     `json:"message"`
	Reason             *string     `json:"reason"`
	HostIP             string      `json:"hostIP,omitempty"`
	HostIPs            []any       `json:"hostIPs,omitempty"`
	*patchAddress
	StartTime                  *metav1.Time         `json:"startTime,omitempty"`
	InitContainerStatuses      []v1.ContainerStatus `json:"initContainerStatuses"`
	ContainerStatuses          []v1.ContainerStatus `json:"containerStatuses"`
	EphemeralContainerStatuses []v1.ContainerStatus `json:"ephemeralContainerStatuses"`
	QOSClass                   v1.PodQOSClass       `json:"qosClass,omitempty"`
	AllocatedResources         map[string]any       `json:"allocatedResources"`
	Resources                  *patchResources      `json:"resources"`
}

type patchAddress struct {
	PodIP  *string `json:"podIP"`
	PodIPs []any   `json:"podIPs"`
}

type patchResources struct {
	Limits   map[string]any `json:"limits"`
	Requests map[string]any `json:"requests"`
}

type patchCondition struct {
	Type               v1.PodConditionType `json:"type"`
	Status             v1.ConditionStatus  `json:"status"`
	ObservedGeneration *int64              `json:"observedGeneration"`
	LastProbeTime      *metav1.Time        `json:"lastProbeTime"`
	LastTransitionTime metav1.Time         `json:"lastTransitionTime"`
	Reason             *string             `json:"reason"`
	Message            *string             `json:"message"`
}

type deleteCondition struct {
	Type      v1.PodConditionType `json:"type"`
	Directive string              `json:"$patch"`
}

type patchDirective struct {
	Directive string `json:"$patch"`
}

// buildPatch makes the strategic merge patch that gives the object with this
// UID the normalized status desired. known is what the apiserver has, as far as
// is known: owned conditions of it that are no longer desired are deleted.
func buildPatch(uid types.UID, desired, known v1.PodStatus) ([]byte, error) {
	st := patchStatus{
		ObservedGeneration:         desired.ObservedGeneration,
		Phase:                      desired.Phase,
		Message:                    orNull(desired.Message),
		Reason:                     orNull(desired.Reason),
		HostIP:                     desired.HostIP,
		StartTime:                  desired.StartTime,
		InitContainerStatuses:      orNullList(desired.InitContainerStatuses),
		ContainerStatuses:          orNullList(desired.ContainerStatuses),
		EphemeralContainerStatuses: orNullList(desired.EphemeralContainerStatuses),
		QOSClass:                   desired.QOSClass,
		Conditions:                 conditionPatches(desired.Conditions, known.Conditions),
		HostIPs:                    replaceList(desired.HostIPs),
	}
	// What a previous run sent may arrive after known was read: the address of a
	// pod that has ended stands, whatever it is.
	if desired.PodIP != "" || !podutil.TerminalPhase(desired.Phase) {
		st.patchAddress = &patchAddress{PodIP: orNull(desired.PodIP), PodIPs: replaceList(desired.PodIPs)}
	}
	st.AllocatedResources = amounts(desired.AllocatedResources, known.AllocatedResources)
	if desired.Resources != nil {
		var had v1.ResourceRequirements
		if known.Resources != nil {
			had = *known.Resources
		}
		st.Resources = &patchResources{Limits: amounts(desired.Resources.Limits, had.Limits), Requests: amounts(desired.Resources.Requests, had.Requests)}
	}
	data, err := json.Marshal(patchDocument{Metadata: patchMetadata{UID: uid}, Status: st})
	if err != nil {
		return nil, fmt.Errorf("encode status patch: %w", err)
	}
	return data, nil
}

// amounts makes a map of a status say this, whether the object has the map or
// not: the directive that replaces a map does nothing where there is none.
func amounts(desired, known v1.ResourceList) map[string]any {
	if len(desired) == 0 {
		return nil
	}
	out := make(map[string]any, len(desired))
	for name := range known {
		out[string(name)] = nil
	}
	for name, quantity := range desired {
		out[string(name)] = quantity
	}
	return out
}

func conditionPatches(desired, known []v1.PodCondition) []any {
	out := make([]any, 0, len(desired))
	for _, c := range desired {
		p := patchCondition{
			Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: orNull(c.Reason), Message: orNull(c.Message),
		}
		if c.ObservedGeneration != 0 {
			p.ObservedGeneration = &c.ObservedGeneration
		}
		out = append(out, p)
	}
	for _, c := range known {
		if owned(c.Type) && podutil.Condition(desired, c.Type) == nil {
			out = append(out, deleteCondition{Type: c.Type, Directive: "delete"})
		}
	}
	return out
}

// replaceList makes a list that strategic merge would merge by key replace the
// old one; an empty one is null.
func replaceList[T any](list []T) []any {
	if len(list) == 0 {
		return nil
	}
	out := make([]any, 0, len(list)+1)
	out = append(out, patchDirective{Directive: "replace"})
	for _, item := range list {
		out = append(out, item)
	}
	return out
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func orNullList[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}
