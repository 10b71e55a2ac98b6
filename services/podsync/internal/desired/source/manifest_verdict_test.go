package source

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// verdict is one manifest of validate/testdata; test/node holds the list to a
// real apiserver.
type verdict struct{ Metadata, Spec, Container string }

func (v verdict) text() string {
	comma := func(text string) string {
		if text == "" {
			return ""
		}
		return ", " + text
	}
	metadata, container := v.Metadata, v.Container
	if metadata == "" {
		metadata = "{name: p}"
	}
	if !strings.HasPrefix(container, "{") {
		container = "{name: c, image: \"i:1\"" + comma(container) + "}"
	}
	return "apiVersion: v1\nkind: Pod\nmetadata: " + metadata + "\nspec: {containers: [" + container + "]" + comma(v.Spec) + "}\n"
}

func TestManifestsAreTakenAndRefusedAsTheApiserverDoes(t *testing.T) {
	data, err := os.ReadFile("../validate/testdata/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var lists struct{ Good, Bad []verdict }
	if err := yaml.UnmarshalStrict(data, &lists); err != nil {
		t.Fatal(err)
	}
	if len(lists.Good) < 50 || len(lists.Bad) < 100 {
		t.Fatalf("%d good and %d bad manifests: the list is cut", len(lists.Good), len(lists.Bad))
	}
	for _, v := range lists.Good {
		if _, ignored, err := Check("n", "/p", []byte(v.text())); err != nil || ignored != "" {
			t.Errorf("%+v: %v %s", v, err, ignored)
		}
	}
	for _, v := range lists.Bad {
		pod, _, err := Check("n", "/p", []byte(v.text()))
		if err == nil {
			t.Errorf("%+v is taken: %+v", v, pod.Spec)
		}
	}
}

func TestAStaticPodMayNotReferToObjectsOfTheApiserver(t *testing.T) {
	for _, v := range []verdict{
		{Spec: "serviceAccountName: x"}, {Spec: "serviceAccount: x"}, {Spec: "imagePullSecrets: [{name: x}]"}, {Spec: "resourceClaims: [{name: a, resourceClaimName: b}]"},
		{Spec: "ephemeralContainers: [{name: e, image: i}]"},
		{Container: "env: [{name: A, valueFrom: {secretKeyRef: {name: x, key: k}}}]"}, {Container: "env: [{name: A, valueFrom: {configMapKeyRef: {name: x, key: k}}}]"},
		{Container: "envFrom: [{secretRef: {name: x}}]"}, {Container: "envFrom: [{configMapRef: {name: x}}]"},
		{Spec: "initContainers: [{name: i, image: i, envFrom: [{configMapRef: {name: x}}]}]"},
		{Spec: "volumes: [{name: v, secret: {secretName: x}}]"}, {Spec: "volumes: [{name: v, configMap: {name: x}}]"}, {Spec: "volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]"},
		{Spec: "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}}]"}, {Spec: "volumes: [{name: v, csi: {driver: x.y}}]"},
		{Spec: "volumes: [{name: v, glusterfs: {endpoints: e, path: p}}]"}, {Spec: "volumes: [{name: v, azureFile: {secretName: s, shareName: s}}]"},
		{Spec: "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]"}, {Spec: "volumes: [{name: v, projected: {sources: [{secret: {name: x}}]}}]"},
		{Spec: "volumes: [{name: v, projected: {sources: [{configMap: {name: x}}]}}]"}, {Spec: "volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: x, path: p}}]}}]"},
		{Spec: "volumes: [{name: v, flexVolume: {driver: a/b, secretRef: {name: x}}}]"}, {Spec: "volumes: [{name: v, rbd: {monitors: [m], image: i, secretRef: {name: x}}}]"},
	} {
		if _, _, err := Check("n", "/p", []byte(v.text())); err == nil || !strings.Contains(err.Error(), "Forbidden") || !strings.Contains(err.Error(), "remove") {
			t.Errorf("%+v: %v", v, err)
		}
	}
}

func TestAStaticPodMayReferWhereTheGateIsOff(t *testing.T) {
	decoder, err := newDecoder()
	if err != nil {
		t.Fatal(err)
	}
	for _, allowed := range []bool{true, false} {
		pod, _, err := decoder.decode([]byte(verdict{Spec: "serviceAccountName: x"}.text()))
		if err != nil {
			t.Fatal(err)
		}
		if err := finish(pod, origin{node: "n", src: File, path: "/p", mayRefer: allowed}); (err == nil) != allowed {
			t.Errorf("allowed %v: %v", allowed, err)
		}
		pod, _, err = decoder.decode([]byte(verdict{Spec: "resourceClaims: [{name: a, resourceClaimName: b}]"}.text()))
		if err != nil {
			t.Fatal(err)
		}
		if err := finish(pod, origin{node: "n", src: File, path: "/p", mayRefer: allowed}); err == nil || !strings.Contains(err.Error(), "spec.resourceClaims: Forbidden") {
			t.Errorf("allowed %v: a static pod with claims: %v", allowed, err)
		}
	}
}
