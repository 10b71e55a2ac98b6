package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
)

// People write the largest integer for "no limit"; a float64 rounds it.
func TestLargeIntegersOfTheConfigurationAreShownAndComparedAsTheyAre(t *testing.T) {
	document := func(number string) []byte { return fmt.Appendf(nil, `{"podPidsLimit":%s}`, number) }
	for _, number := range []string{"9223372036854775807", "9007199254740993", "1000000000000000000000"} {
		if got := string(withoutFiles(document(number))); got != string(document(number)) {
			t.Errorf("%s without files is %s", number, got)
		}
		headers := fmt.Appendf(nil, `{"podPidsLimit":%s,"staticPodURLHeader":{"A":["secret"]}}`, number)
		masked := string(maskSecrets(headers))
		if strings.Contains(masked, "secret") || !strings.Contains(masked, number+",") {
			t.Errorf("%s beside headers is %s", number, masked)
		}
		var table, indented, yaml bytes.Buffer
		if err := showConfig(&table, &commonv1.GetConfigResponse{KubeletConfigurationJson: document(number)}, false); err != nil {
			t.Fatal(err)
		}
		if err := writeDocument(&indented, formatJSON, document(number)); err != nil {
			t.Fatal(err)
		}
		for name, shown := range map[string]string{"the table": table.String(), "-o json": indented.String()} {
			if !strings.Contains(shown, number) {
				t.Errorf("%s shows %s as\n%s", name, number, shown)
			}
		}
		if err := writeDocument(&yaml, formatYAML, document(number)); len(number) < 20 && (err != nil || yaml.String() != "podPidsLimit: "+number+"\n") {
			t.Errorf("-o yaml shows %s as %s, %v", number, yaml.String(), err)
		}
	}
	if shown := string(maskSecrets([]byte(`{"staticPodURL":"https://me:secret@pods.example/a"}`))); strings.Contains(shown, "secret") || !strings.Contains(shown, "pods.example/a") {
		t.Errorf("a URL is shown as %s", shown)
	}
	if sameDocument(document("9007199254740993"), document("9007199254740992")) {
		t.Error("two numbers are one")
	}
	for _, bad := range []string{"", "{", "{} {}"} {
		if sameDocument([]byte(bad), []byte(bad)) || writeDocument(&bytes.Buffer{}, formatJSON, []byte(bad)) == nil {
			t.Errorf("%q is a document", bad)
		}
	}
}
