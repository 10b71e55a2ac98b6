package validate

import "testing"

func TestWhatIsWrongWithResourcesIsNamedByItsPath(t *testing.T) {
	const c = "spec.containers[0].resources"
	for _, r := range []row{
		{"", "resources: {requests: {cpu: 1}, limits: {cpu: 1}}", ""},
		{"", "resources: {requests: {cpu: 2}, limits: {cpu: 1}}", c + ".requests[cpu]: FieldValueInvalid"},
		{"", "resources: {limits: {cpu: -1}}", c + ".limits[cpu]: FieldValueInvalid, " + c + ".requests[cpu]: FieldValueInvalid"},
		{"", "resources: {limits: {disks: 1}}", c + ".limits[disks]: FieldValueInvalid, " + c + ".requests[disks]: FieldValueInvalid"},
		{"", "resources: {requests: {example.com/gpu: 1}}", c + ".limits[example.com/gpu]: FieldValueRequired"},
		{"", "resources: {limits: {example.com/gpu: 2}, requests: {example.com/gpu: 1}}", c + ".requests[example.com/gpu]: FieldValueInvalid"},
		{"", "resources: {limits: {example.com/gpu: 500m}}", c + ".limits[example.com/gpu]: FieldValueInvalid, " + c + ".requests[example.com/gpu]: FieldValueInvalid"},
		{"", "resources: {limits: {hugepages-2Mi: 2Mi}}", c + ": FieldValueForbidden"},
		{"", "resources: {limits: {cpu: 1, hugepages-2Mi: 3Mi}}", c + ".limits[hugepages-2Mi]: FieldValueInvalid, " + c + ".requests[hugepages-2Mi]: FieldValueInvalid"},
		{"", "resources: {claims: [{name: a}]}", c + ".claims[0]: FieldValueNotFound"},
		{"overhead: {cpu: -1}", "", "spec.overhead[cpu]: FieldValueInvalid"},
	} {
		r.check(t)
	}
}

func TestAPodsOwnResourcesCoverItsContainers(t *testing.T) {
	for _, r := range []row{
		{"resources: {requests: {cpu: 2}, limits: {cpu: 2}}", "resources: {requests: {cpu: 1}, limits: {cpu: 2}}", ""},
		{"resources: {requests: {cpu: 1}}", "resources: {requests: {cpu: 2}}", "spec.resources.requests[cpu]: FieldValueInvalid"},
		{"resources: {requests: {cpu: 1}, limits: {cpu: 1}}", "resources: {requests: {cpu: 1}, limits: {cpu: 2}}", "spec.containers[0].resources.limits[cpu]: FieldValueInvalid"},
		{"resources: {requests: {ephemeral-storage: 1}}", "", "spec.resources.requests: FieldValueNotSupported"},
		{"resources: {requests: {cpu: 1}, claims: [{name: a}]}", "", "spec.resources.claims: FieldValueForbidden"},
	} {
		r.check(t)
	}
}
