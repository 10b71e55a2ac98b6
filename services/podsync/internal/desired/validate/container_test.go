package validate

import "testing"

func TestWhatIsWrongWithAContainerIsNamedByItsPath(t *testing.T) {
	const c = "spec.containers[0]."
	for _, r := range []row{
		{"", "[]", "spec.containers: FieldValueRequired"},
		{"", "[{image: i}]", c + "name: FieldValueRequired"},
		{"", "[{name: A, image: i}]", c + "name: FieldValueInvalid"},
		{"", "[{name: c}]", c + "image: FieldValueRequired"},
		{"", "[{name: c, image: ' i'}]", c + "image: FieldValueInvalid"},
		{"initContainers: [{name: c, image: i}, {name: c, image: i}]", "[{name: d, image: i}]", "spec.initContainers[1].name: FieldValueDuplicate"},
		{"", "imagePullPolicy: Later", c + "imagePullPolicy: FieldValueNotSupported"},
		{"", "terminationMessagePolicy: Loud", c + "terminationMessagePolicy: FieldValueNotSupported"},
		{"", "ports: [{containerPort: 0}]", c + "ports[0].containerPort: FieldValueInvalid"},
		{"", "ports: [{containerPort: 80, name: a}, {containerPort: 81, name: a}]", c + "ports[1].name: FieldValueDuplicate"},
		{"", "ports: [{containerPort: 80, protocol: ICMP}]", c + "ports[0].protocol: FieldValueNotSupported"},
		{"", "env: [{value: a}]", c + "env[0].name: FieldValueRequired"},
		{"", "env: [{name: A, valueFrom: {}}]", c + "env[0].valueFrom: FieldValueInvalid"},
		{"", "env: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]", c + "env[0].valueFrom: FieldValueInvalid"},
		{"", "env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.phase}}}]", c + "env[0].valueFrom.fieldRef.fieldPath: FieldValueInvalid"},
		{"", "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.disks}}}]", c + "env[0].valueFrom.resourceFieldRef.resource: FieldValueNotSupported"},
		{"", "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1Mi}}}]", c + "env[0].valueFrom.resourceFieldRef.divisor: FieldValueInvalid"},
		{"", "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: f, key: K}}}]", c + "env[0].valueFrom.fileKeyRef.volumeName: FieldValueNotFound"},
		{"volumes: [{name: v, emptyDir: {}}]", "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: ../f, key: K}}}]", c + "env[0].valueFrom.fileKeyRef.path: FieldValueInvalid"},
		{"", "envFrom: [{prefix: A}]", c + "envFrom[0]: FieldValueInvalid"},
		{"", "volumeDevices: [{name: d, devicePath: /dev/x}]", c + "volumeDevices[0].name: FieldValueNotFound"},
	} {
		r.check(t)
	}
}

func TestAMountStaysInItsVolumeAndItsPlace(t *testing.T) {
	const m = "spec.containers[0].volumeMounts"
	volumes := "volumes: [{name: v, emptyDir: {}}]"
	for _, r := range []row{
		{volumes, "volumeMounts: [{name: v, mountPath: /v, subPath: a/b}]", ""},
		{volumes, "volumeMounts: [{name: w, mountPath: /v}]", m + "[0].name: FieldValueNotFound"},
		{volumes, "volumeMounts: [{name: v}]", m + "[0].mountPath: FieldValueRequired"},
		{volumes, "volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /v}]", m + "[1].mountPath: FieldValueInvalid"},
		{volumes, "volumeMounts: [{name: v, mountPath: /v, subPath: a/../../b}]", m + "[0].subPath: FieldValueInvalid"},
		{volumes, "volumeMounts: [{name: v, mountPath: /v, subPath: /a}]", m + "[0].subPath: FieldValueInvalid"},
		{volumes, "volumeMounts: [{name: v, mountPath: /v, subPath: a, subPathExpr: b}]", m + "[0].subPathExpr: FieldValueInvalid"},
		{volumes, "volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]", m + "[0].mountPropagation: FieldValueForbidden"},
		{volumes, "securityContext: {privileged: true}, volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]", ""},
		{volumes, "volumeMounts: [{name: v, mountPath: /v, recursiveReadOnly: Enabled}]", m + "[0].recursiveReadOnly: FieldValueForbidden"},
		{volumes, "volumeMounts: [{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled}]", ""},
		{volumes, "volumeMounts: [{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled, mountPropagation: HostToContainer}]", m + "[0].recursiveReadOnly: FieldValueForbidden"},
	} {
		r.check(t)
	}
}

func TestRestartsAndResizesOfAContainerFitThePod(t *testing.T) {
	const c = "spec.containers[0]."
	for _, r := range []row{
		{"", "resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]", c + "resizePolicy[1]: FieldValueDuplicate"},
		{"", "resizePolicy: [{resourceName: pods, restartPolicy: NotRequired}]", c + "resizePolicy[0].resourceName: FieldValueNotSupported"},
		{"restartPolicy: Never", "resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]", c + "resizePolicy[0].restartPolicy: FieldValueInvalid"},
		{"", "restartPolicy: Maybe", c + "restartPolicy: FieldValueNotSupported"},
		{"", "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]", c + "restartPolicy: FieldValueRequired"},
		{"", "restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]", ""},
		{"", "restartPolicy: Never, restartPolicyRules: [{action: Panic, exitCodes: {operator: In, values: [1]}}]", c + "restartPolicyRules[0].action: FieldValueNotSupported"},
		{"", "restartPolicy: Never, restartPolicyRules: [{action: Restart}]", c + "restartPolicyRules[0].exitCodes: FieldValueRequired"},
		{"initContainers: [{name: s, image: i, restartPolicy: Always, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}]", "", "spec.initContainers[0].restartPolicyRules: FieldValueForbidden"},
	} {
		r.check(t)
	}
}
