package validate

import "testing"

func TestWhatIsWrongWithAVolumeIsNamedByItsPath(t *testing.T) {
	const v = "spec.volumes[0]"
	for _, r := range []row{
		{"volumes: [{name: a}, {name: a}]", "", "spec.volumes[1].name: FieldValueDuplicate"},
		{"volumes: [{emptyDir: {}}]", "", v + ".name: FieldValueRequired"},
		{"volumes: [{name: a, emptyDir: {}, hostPath: {path: /}}]", "", v + ": FieldValueForbidden"},
		{"volumes: [{name: a, emptyDir: {sizeLimit: -1}}]", "", v + ".emptyDir.sizeLimit: FieldValueForbidden"},
		{"volumes: [{name: a, hostPath: {}}]", "", v + ".hostPath.path: FieldValueRequired"},
		{"volumes: [{name: a, hostPath: {path: /a/../b}}]", "", v + ".hostPath.path: FieldValueInvalid"},
		{"volumes: [{name: a, hostPath: {path: /a..b, type: Directory}}]", "", ""},
		{"volumes: [{name: a, hostPath: {path: /a, type: Pipe}}]", "", v + ".hostPath.type: FieldValueNotSupported"},
		{"volumes: [{name: a, downwardAPI: {defaultMode: 512}}]", "", v + ".downwardAPI.defaultMode: FieldValueInvalid"},
		{"volumes: [{name: a, downwardAPI: {items: [{path: a}]}}]", "", v + ".downwardAPI.items[0]: FieldValueRequired"},
		{"volumes: [{name: a, downwardAPI: {items: [{path: ../a, fieldRef: {fieldPath: metadata.name}}]}}]", "", v + ".downwardAPI.items[0].path: FieldValueInvalid, " + v + ".downwardAPI.items[0].path: FieldValueInvalid"},
		{"volumes: [{name: a, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}, {path: a, fieldRef: {fieldPath: metadata.uid}}]}}]", "", v + ".downwardAPI.items[1].path: FieldValueInvalid"},
		{"volumes: [{name: a, downwardAPI: {items: [{path: a, resourceFieldRef: {resource: limits.cpu}}]}}]", "", v + ".downwardAPI.items[0].resourceFieldRef.containerName: FieldValueRequired"},
		{"volumes: [{name: a, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: status.podIP}}]}}]", "", v + ".downwardAPI.items[0].fieldRef.fieldPath: FieldValueInvalid"},
		{"volumes: [{name: a, image: {}}]", "", v + ".image.reference: FieldValueRequired"},
		{"volumes: [{name: a, gitRepo: {repository: r, directory: ../x}}]", "", v + ".gitRepo.directory: FieldValueInvalid"},
		{"volumes: [{name: a, nfs: {server: s, path: p}}]", "", v + ".nfs.path: FieldValueInvalid"},
		{"volumes: [{name: a, nfs: {}}]", "", v + ".nfs.path: FieldValueRequired, " + v + ".nfs.server: FieldValueRequired"},
		{"volumes: [{name: a, iscsi: {targetPortal: t, iqn: q, lun: 256}}]", "", v + ".iscsi.lun: FieldValueInvalid"},
		{"volumes: [{name: a, fc: {targetWWNs: [w]}}]", "", v + ".fc.lun: FieldValueRequired"},
		{"volumes: [{name: a, fc: {}}]", "", v + ".fc: FieldValueRequired"},
		{"volumes: [{name: a, cephfs: {}}]", "", v + ".cephfs.monitors: FieldValueRequired"},
	} {
		r.check(t)
	}
}
