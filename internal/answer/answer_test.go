package answer

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestAListWithoutAVersionIsNoAnswer(t *testing.T) {
	broken := errors.New("no route to host")
	if err := List(&v1.PodList{}, broken); !errors.Is(err, broken) {
		t.Errorf("an error is %v", err)
	}
	if List(&v1.PodList{Items: []v1.Pod{{}}}, nil) == nil {
		t.Error("a list without a version is one")
	}
	if err := List(&v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil); err != nil {
		t.Errorf("an empty list of version 7 is %v", err)
	}
}

func TestAnObjectThatIsNotTheOneAskedForIsNoAnswer(t *testing.T) {
	broken := errors.New("no route to host")
	if err := Object(&v1.Node{}, "n", broken); !errors.Is(err, broken) {
		t.Errorf("an error is %v", err)
	}
	for _, meta := range []metav1.ObjectMeta{{}, {Name: "n"}, {UID: "u"}, {Name: "m", UID: "u"}} {
		if Object(&v1.Node{ObjectMeta: meta}, "n", nil) == nil {
			t.Errorf("%+v is Node n", meta)
		}
	}
	if err := Object(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}, "n", nil); err != nil {
		t.Errorf("Node n is %v", err)
	}
}

func TestOnlyWhatSaysWhatWasDeletedSaysThatItWas(t *testing.T) {
	for text, want := range map[string]error{
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","uid":"u"}}`:                      nil,
		`{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":"p","uid":"u"}}`: nil,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","uid":"other"}}`:                  ErrNotSaid,
		`{"kind":"Status","apiVersion":"v1","status":"Success"}`:                                  ErrNotSaid,
		`{}`:              ErrNotSaid,
		`<html></html>`:   ErrNotSaid,
		``:                ErrNotSaid,
		`not even a page`: ErrNotSaid,
	} {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://proxy", QPS: -1, Transport: says(text)})
		if err != nil {
			t.Fatal(err)
		}
		result := client.CoreV1().RESTClient().Delete().Namespace("ns").Resource("pods").Name("p").Do(t.Context())
		if err := Deleted(result, "u"); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

// says answers each request with this text.
type says string

func (s says) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(s))), Request: r}, nil
}
