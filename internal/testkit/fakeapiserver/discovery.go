package fakeapiserver

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// serveMeta answers health, version and discovery.
func (s *Server) serveMeta(w http.ResponseWriter, hr *http.Request) bool {
	path := strings.Trim(hr.URL.Path, "/")
	switch path {
	case "healthz", "livez", "readyz":
		_, _ = w.Write([]byte("ok"))
		return true
	case "version":
		write(w, http.StatusOK, version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3"})
		return true
	case "api":
		write(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}})
		return true
	case "apis":
		write(w, http.StatusOK, s.groups())
		return true
	}
	gv, err := schema.ParseGroupVersion(strings.TrimPrefix(strings.TrimPrefix(path, "apis/"), "api/"))
	if err != nil || strings.Count(path, "/") > 2 {
		return false
	}
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for gvr, t := range s.tables {
		if gvr.GroupVersion() == gv || gv == eventsGV && gvr.Resource == "events" {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: t.res.name, Kind: t.res.gvk.Kind, Namespaced: t.res.namespaced, SingularName: strings.ToLower(t.res.gvk.Kind),
				Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
			})
		}
	}
	if len(list.APIResources) == 0 {
		return false
	}
	slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return cmp.Compare(a.Name, b.Name) })
	write(w, http.StatusOK, list)
	return true
}

func (s *Server) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	gvs := map[schema.GroupVersion]bool{eventsGV: true}
	for gvr := range s.tables {
		if gvr.Group != "" {
			gvs[gvr.GroupVersion()] = true
		}
	}
	for gv := range gvs {
		v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	slices.SortFunc(list.Groups, func(a, b metav1.APIGroup) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
