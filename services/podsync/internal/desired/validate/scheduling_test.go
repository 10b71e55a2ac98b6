package validate

import "testing"

func TestWhatIsWrongWithWhereAPodMayRunIsNamedByItsPath(t *testing.T) {
	const node, pods = "spec.affinity.nodeAffinity.", "spec.affinity.podAffinity."
	for _, r := range []row{
		{"nodeSelector: {a: b c}", "", "spec.nodeSelector: FieldValueInvalid"},
		{"tolerations: [{operator: Exists}, {key: a, value: b}]", "", ""},
		{"tolerations: [{operator: Equal}]", "", "spec.tolerations[0].operator: FieldValueInvalid"},
		{"tolerations: [{key: a, operator: Exists, value: b}]", "", "spec.tolerations[0].operator: FieldValueInvalid"},
		{"tolerations: [{key: a, operator: Like}]", "", "spec.tolerations[0].operator: FieldValueNotSupported"},
		{"tolerations: [{key: a, effect: Never}]", "", "spec.tolerations[0].effect: FieldValueNotSupported"},
		{"tolerations: [{key: a, effect: NoSchedule, tolerationSeconds: 1}]", "", "spec.tolerations[0].effect: FieldValueInvalid"},
		{"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}", "", node + "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: FieldValueRequired"},
		{"affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, preference: {}}]}}", "", node + "preferredDuringSchedulingIgnoredDuringExecution[0].weight: FieldValueInvalid"},
		{term("{key: a, operator: In}"), "", node + termPath + ".matchExpressions[0].values: FieldValueRequired"},
		{term("{key: a, operator: Exists, values: [b]}"), "", node + termPath + ".matchExpressions[0].values: FieldValueForbidden"},
		{term("{key: a, operator: Gt, values: ['1', '2']}"), "", node + termPath + ".matchExpressions[0].values: FieldValueRequired"},
		{term("{key: a, operator: Near, values: [b]}"), "", node + termPath + ".matchExpressions[0].operator: FieldValueNotSupported"},
		{term("{key: a/b/c, operator: Exists}"), "", node + termPath + ".matchExpressions[0].key: FieldValueInvalid"},
		{"affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {}}]}}", "", pods + "requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: FieldValueRequired"},
		{"affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: z, namespaces: [A]}]}}", "", pods + "requiredDuringSchedulingIgnoredDuringExecution[0].namespaces[0]: FieldValueInvalid"},
		{"affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, podAffinityTerm: {topologyKey: z}}]}}", "", pods + "preferredDuringSchedulingIgnoredDuringExecution[0].weight: FieldValueInvalid"},
		{"topologySpreadConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]", "", "spec.topologySpreadConstraints[0].maxSkew: FieldValueInvalid"},
		{"topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Ask}]", "", "spec.topologySpreadConstraints[0].whenUnsatisfiable: FieldValueNotSupported"},
	} {
		r.check(t)
	}
}

const termPath = "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"

// term is a pod that needs a node with one expression.
func term(expression string) string {
	return "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [" + expression + "]}]}}}"
}
