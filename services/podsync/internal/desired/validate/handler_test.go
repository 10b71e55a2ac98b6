package validate

import "testing"

func TestWhatIsWrongWithAProbeOrHookIsNamedByItsPath(t *testing.T) {
	const c = "spec.containers[0]."
	for _, r := range []row{
		{"", "livenessProbe: {tcpSocket: {port: 80}}", ""},
		{"", "livenessProbe: {}", c + "livenessProbe: FieldValueRequired"},
		{"", "livenessProbe: {tcpSocket: {port: 80}, exec: {command: [a]}}", c + "livenessProbe: FieldValueForbidden"},
		{"", "livenessProbe: {exec: {}}", c + "livenessProbe.exec.command: FieldValueRequired"},
		{"", "livenessProbe: {tcpSocket: {port: 80}, successThreshold: 2}", c + "livenessProbe.successThreshold: FieldValueInvalid"},
		{"", "startupProbe: {tcpSocket: {port: 80}, successThreshold: 2}", c + "startupProbe.successThreshold: FieldValueInvalid"},
		{"", "readinessProbe: {tcpSocket: {port: 80}, successThreshold: 2}", ""},
		{"", "readinessProbe: {tcpSocket: {port: 80}, initialDelaySeconds: -1}", c + "readinessProbe.initialDelaySeconds: FieldValueInvalid"},
		{"", "readinessProbe: {tcpSocket: {port: 80}, terminationGracePeriodSeconds: 1}", c + "readinessProbe.terminationGracePeriodSeconds: FieldValueInvalid"},
		{"", "livenessProbe: {tcpSocket: {port: 80}, terminationGracePeriodSeconds: 0}", c + "livenessProbe.terminationGracePeriodSeconds: FieldValueInvalid"},
		{"", "livenessProbe: {grpc: {port: 70000}}", c + "livenessProbe.grpc.port: FieldValueInvalid"},
		{"", "livenessProbe: {httpGet: {port: web_, path: /}}", c + "livenessProbe.httpGet.port: FieldValueInvalid"},
		{"", "livenessProbe: {httpGet: {port: 80, scheme: FTP}}", c + "livenessProbe.httpGet.scheme: FieldValueNotSupported"},
		{"", "livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: 'a b', value: c}]}}", c + "livenessProbe.httpGet.httpHeaders[0]: FieldValueInvalid"},
		{"", "lifecycle: {preStop: {}}", c + "lifecycle.preStop: FieldValueRequired"},
		{"terminationGracePeriodSeconds: 3", "lifecycle: {preStop: {sleep: {seconds: 3}}}", ""},
		{"terminationGracePeriodSeconds: 3", "lifecycle: {preStop: {sleep: {seconds: 4}}}", c + "lifecycle.preStop.sleep.seconds: FieldValueInvalid"},
		{"", "lifecycle: {stopSignal: SIGTERM}", c + "lifecycle.stopSignal: FieldValueForbidden"},
		{"os: {name: linux}", "lifecycle: {stopSignal: SIGTERM}", ""},
		{"initContainers: [{name: i, image: i, readinessProbe: {tcpSocket: {port: 80}}}]", "", "spec.initContainers[0].readinessProbe: FieldValueForbidden"},
		{"initContainers: [{name: i, image: i, restartPolicy: Always, readinessProbe: {tcpSocket: {port: 80}}}]", "", ""},
	} {
		r.check(t)
	}
}
