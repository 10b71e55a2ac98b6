package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestFewWordsOfASpecFillNoDiskAndNoMemory(t *testing.T) {
	f := newFixture(t)
	f.objects.setMap("large", map[string]string{"k": strings.Repeat("x", 1<<20)})
	var down []v1.DownwardAPIVolumeFile
	var keys []v1.KeyToPath
	for i := range 200 {
		down = append(down, v1.DownwardAPIVolumeFile{Path: fmt.Sprint(i), FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}})
		keys = append(keys, v1.KeyToPath{Key: "k", Path: fmt.Sprint(i)})
	}
	configMap := func(keys []v1.KeyToPath) v1.VolumeSource {
		return v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "large"}, Items: keys}}
	}
	for name, c := range map[string]struct {
		source v1.VolumeSource
		ok     bool
	}{
		"annotations":           {v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: down}}, false},
		"projected annotations": {v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{DownwardAPI: &v1.DownwardAPIProjection{Items: down}}}}}, false},
		"a key":                 {configMap(keys), false},
		"a key, twenty times":   {configMap(keys[:20]), true},
	} {
		pod := podWith(v1.Volume{Name: "v", VolumeSource: c.source})
		pod.Annotations = map[string]string{"a": strings.Repeat("x", 256<<10)}
		err := f.set.Setup(t.Context(), pod)
		if c.ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "more than 32 MiB") {
			t.Errorf("%s: %v", name, err)
		}
		if !c.ok {
			if left, _ := filepath.Glob(filepath.Join(f.root, "pods", "uid-1", "volumes", "*", "v", "*")); len(left) > 0 {
				t.Errorf("%s: %d files were written", name, len(left))
			}
		}
		if err := f.set.Teardown(t.Context(), pod.UID); err != nil {
			t.Fatal(err)
		}
		_ = os.RemoveAll(filepath.Join(f.root, "pods"))
	}
}

// TestDirectoriesOfFilesCountToo: a path of 4 KiB is two thousand of them.
func TestDirectoriesOfFilesCountToo(t *testing.T) {
	f := newFixture(t)
	f.objects.setMap("small", map[string]string{"k": "x"})
	var items []v1.KeyToPath
	for i := range 20 {
		items = append(items, v1.KeyToPath{Key: "k", Path: fmt.Sprintf("%02d/", i) + strings.Repeat("d/", 1000) + "f"})
	}
	deep := func(items []v1.KeyToPath) *v1.Pod {
		return podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "small"}, Items: items}}})
	}
	if err := f.set.Setup(t.Context(), deep(items)); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("%.300v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(f.root, "pods", "uid-1", "volumes", "*", "v")); len(left) > 0 {
		t.Errorf("%q was made", left)
	}
	for range 20 { // counted once, however often they are looked at
		if err := f.set.Setup(t.Context(), deep(items[:1])); err != nil {
			t.Fatalf("%.300v", err)
		}
	}
}

// TestThePodsVolumesTogetherAreBounded: each file is small enough, and each volume,
// and there may be thousands of them. What a volume has is counted once, however
// often it is made.
func TestThePodsVolumesTogetherAreBounded(t *testing.T) {
	f := newFixture(t)
	f.objects.setMap("large", map[string]string{"k": strings.Repeat("x", 1<<20)})
	volumes := func(count, items int, key string) (list []v1.Volume) {
		f.objects.setMap("small", map[string]string{"k": "x"})
		for i := range count {
			source := &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: key}}
			for j := range items {
				source.Items = append(source.Items, v1.KeyToPath{Key: "k", Path: fmt.Sprint(j)})
			}
			list = append(list, v1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: v1.VolumeSource{ConfigMap: source}})
		}
		return list
	}
	for name, c := range map[string]struct {
		volumes []v1.Volume
		ok      bool
	}{
		"sixty large files":            {volumes(3, 20, "large"), true},
		"eighty large files":           {volumes(4, 20, "large"), false},
		"many files of a page":         {volumes(1, 1000, "small"), true},
		"more files than have a place": {volumes(1, 16400, "small"), false},
	} {
		pod := podWith(c.volumes...)
		var err error
		for range 2 {
			err = f.set.Setup(t.Context(), pod)
		}
		if c.ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "more than 64 MiB together") {
			t.Errorf("%s: %v", name, err)
		}
		if err := f.set.Teardown(t.Context(), pod.UID); err != nil {
			t.Fatal(err)
		}
		_ = os.RemoveAll(filepath.Join(f.root, "pods"))
	}
}

func TestOfSourcesThatFailTheFirstAreNamedAndNoMoreAreAskedFor(t *testing.T) {
	f := newFixture(t)
	source := &v1.ProjectedVolumeSource{}
	for i := range 1000 {
		source.Sources = append(source.Sources, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: fmt.Sprintf("missing-%d", i)}}})
	}
	err := f.set.Setup(t.Context(), podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: source}}))
	for _, want := range []string{`configmap "missing-0" not found`, `configmap "missing-9" not found`, "990 more sources were not looked at"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %.300v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "missing-10\"") {
		t.Errorf("more than ten are named: %v", err)
	}
}

func TestOfVolumesThatFailTheFirstAreNamed(t *testing.T) {
	f := newFixture(t)
	var volumes []v1.Volume
	for i := range 500 {
		volumes = append(volumes, v1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "missing"}}})
	}
	err := f.set.Setup(t.Context(), podWith(volumes...))
	if err == nil || !strings.Contains(err.Error(), `volume "v9"`) || strings.Contains(err.Error(), `volume "v10"`) || !strings.Contains(err.Error(), "and 490 more volumes failed") {
		t.Errorf("%v", err)
	}
}

// TestVolumesThatAreBeingMadeCountTogether: many volumes of a pod are made at once, and
// the files of each are held until they are written.
func TestVolumesThatAreBeingMadeCountTogether(t *testing.T) {
	f := newFixture(t)
	var items []v1.DownwardAPIVolumeFile
	for i := range 120 { // nearly as much as one volume may have
		items = append(items, v1.DownwardAPIVolumeFile{Path: fmt.Sprint(i), FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['a']"}})
	}
	var volumes []v1.Volume
	for i := range 4 {
		volumes = append(volumes, v1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items}}})
	}
	pod := podWith(volumes...)
	pod.Annotations = map[string]string{"a": strings.Repeat("x", 256<<10)}
	_, leave, err := f.set.enter(t.Context(), pod.UID)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	for i := range volumes {
		_, _, err := f.set.files(t.Context(), pod, &pod.Spec.Volumes[i])
		if ok := i < 2; ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "more than 64 MiB together") {
			t.Errorf("volume %d, while those before it are not written yet: %v", i, err)
		}
	}
}

// TestOfALargeObjectThatManySourcesNameOnlyWhatTheyChooseIsLookedAt: a source takes thirty
// bytes of a spec, and an object may have tens of thousands of keys.
func TestOfALargeObjectThatManySourcesNameOnlyWhatTheyChooseIsLookedAt(t *testing.T) {
	f := newFixture(t)
	data := map[string]string{}
	for i := range 20_000 {
		data[fmt.Sprintf("key-%d", i)] = "0123456789012345678901234567890123456789"
	}
	f.objects.setMap("large", data)
	source := &v1.ProjectedVolumeSource{}
	for i := range 1000 {
		source.Sources = append(source.Sources, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
			LocalObjectReference: v1.LocalObjectReference{Name: "large"}, Items: []v1.KeyToPath{{Key: "key-7", Path: fmt.Sprint(i)}},
		}})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := f.set.Setup(t.Context(), podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: source}})); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 200 {
		t.Errorf("%d MiB were copied for a thousand files of forty bytes", took)
	}
}

func TestBehindWhatIsTooMuchNothingIsRead(t *testing.T) {
	f := newFixture(t)
	f.objects.setMap("large", map[string]string{"k": strings.Repeat("x", 1<<20)})
	source := &v1.ProjectedVolumeSource{}
	for range 100 {
		source.Sources = append(source.Sources, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "large"}}})
	}
	source.Sources = append(source.Sources, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "missing"}}})
	err := f.set.Setup(t.Context(), podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: source}}))
	if err == nil || !strings.Contains(err.Error(), "more than 32 MiB together") {
		t.Errorf("%v", err)
	}
}
