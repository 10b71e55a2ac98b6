package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestManifestSaysWhatWouldRunAndWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for file, text := range map[string]string{
		good: "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, spelt: wrong}]}",
		bad:  "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}], volumes: [{name: v, secret: {secretName: s}}]}",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := newManifestCommand()
		cmd.SetOut(&out)
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		return out.String(), err
	}
	out, err := run(good, bad)
	if err == nil || err.Error() != "1 of 2 manifests would not run" {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{"good.yaml: is good, but not all of it counts: ", `unknown field "spec.containers[0].spelt"`, "spec.containers[0].image: Required value", "spec.volumes[0].secret: Forbidden"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out, err = run("--node-name", "n", "-o", "json", good)
	var answer manifestAnswer
	if err != nil || json.Unmarshal([]byte(out), &answer) != nil || answer.Pod.Name != "p-n" || answer.Pod.Spec.RestartPolicy != "Always" {
		t.Errorf("%v %s", err, out)
	}
}
