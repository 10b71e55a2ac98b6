package validate

import "testing"

func TestWhatIsWrongWithAPodsSecurityIsNamedByItsPath(t *testing.T) {
	const p, c = "spec.securityContext.", "spec.containers[0].securityContext"
	for _, r := range []row{
		{"securityContext: {runAsUser: -1}", "", p + "runAsUser: FieldValueInvalid"},
		{"securityContext: {supplementalGroups: [1, 2147483648]}", "", p + "supplementalGroups[1]: FieldValueInvalid"},
		{"securityContext: {supplementalGroupsPolicy: Some}", "", p + "supplementalGroupsPolicy: FieldValueNotSupported"},
		{"securityContext: {fsGroupChangePolicy: Some}", "", p + "fsGroupChangePolicy: FieldValueNotSupported"},
		{"securityContext: {seccompProfile: {}}", "", p + "seccompProfile.type: FieldValueRequired"},
		{"securityContext: {seccompProfile: {type: Localhost}}", "", p + "seccompProfile.localhostProfile: FieldValueRequired"},
		{"securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../../etc/passwd}}", "", p + "seccompProfile.localhostProfile: FieldValueInvalid"},
		{"securityContext: {seccompProfile: {type: RuntimeDefault, localhostProfile: a}}", "", p + "seccompProfile.localhostProfile: FieldValueInvalid"},
		{"securityContext: {appArmorProfile: {type: Localhost, localhostProfile: ''}}", "", p + "appArmorProfile.localhostProfile: FieldValueRequired"},
		{"securityContext: {appArmorProfile: {type: Some}}", "", p + "appArmorProfile.type: FieldValueNotSupported"},
		{"securityContext: {sysctls: [{name: a.b, value: c}, {name: a.b, value: c}]}", "", p + "sysctls[1].name: FieldValueDuplicate"},
		{"securityContext: {sysctls: [{name: a..b, value: c}]}", "", p + "sysctls[0].name: FieldValueInvalid"},
		{"hostNetwork: true, securityContext: {sysctls: [{name: net/ipv4/ip_forward, value: '1'}]}", "", p + "sysctls[0].name: FieldValueInvalid"},
		{"hostIPC: true, securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: '1'}]}", "", p + "sysctls[0].name: FieldValueInvalid"},
		{"", "securityContext: {procMount: Unmasked}", c + ".procMount: FieldValueInvalid"},
		{"hostUsers: false", "securityContext: {procMount: Unmasked}", ""},
		{"os: {name: linux}", "securityContext: {windowsOptions: {}}", c + ".windowsOptions: FieldValueForbidden"},
		{"", "securityContext: {allowPrivilegeEscalation: false, privileged: true}", c + ": FieldValueInvalid"},
		{"", "securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}}", c + ": FieldValueInvalid"},
		{"", "securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [NET_ADMIN]}}", ""},
	} {
		r.check(t)
	}
}
