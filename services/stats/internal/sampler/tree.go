package sampler

import (
	"cmp"
	"path"
	"strings"

	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/inventory"
)

// Roots says where to look.
type Roots struct {
	// Pods is the cgroup above all pods, e.g. /kubepods or /kubepods.slice, until
	// podsync says where it is.
	Pods string
	// Groups are further cgroups to measure, without those below them.
	Groups []string
}

// Tree is the part of the cgroup filesystem that listing needs.
type Tree interface {
	Walk(name string, leaf func(string) bool) ([]string, error)
	Exists(name string) bool
}

// list finds all cgroups to measure and names them.
func list(tree Tree, roots Roots, view inventory.View) ([]Target, error) {
	roots.Pods = cmp.Or(view.PodsCgroup, roots.Pods)
	names, err := tree.Walk(roots.Pods, cgroup.LooksLikeContainer)
	if err != nil {
		return nil, err
	}
	l := lister{view: view, pods: view.ByUID(), seen: make(map[string]bool, len(names))}
	l.add("/")
	for _, name := range roots.Groups {
		if tree.Exists(name) {
			l.add(name)
		}
	}
	for _, name := range names {
		l.add(name)
	}
	if err := l.elsewhere(tree, roots); err != nil {
		return nil, err
	}
	return l.targets, nil
}

type lister struct {
	view    inventory.View
	pods    map[string]inventory.Pod
	seen    map[string]bool
	targets []Target
}

func (l *lister) add(name string) {
	name = path.Join("/", name)
	if l.seen[name] {
		return
	}
	l.seen[name] = true
	l.targets = append(l.targets, l.name(name))
}

// name says what a cgroup is.
func (l *lister) name(cgroupName string) Target {
	t := Target{Cgroup: cgroupName, Kind: Group}
	if cgroupName == "/" {
		t.Kind = Machine
		return t
	}
	id := cgroup.ContainerID(cgroupName)
	if c, ok := l.view.Containers[id]; ok {
		t.Kind, t.ID, t.Pod = Container, id, c.Pod
		t.Container, t.Image, t.StartTime = c.Name, c.Image, c.StartTime
		return t
	}
	if s, ok := l.view.Sandboxes[id]; ok {
		t.Kind, t.ID, t.Pod, t.StartTime = Sandbox, id, s.Pod, s.CreateTime
		return t
	}
	if cgroup.LooksLikeContainer(cgroupName) {
		t.Kind, t.ID = Container, id
		return t
	}
	if uid := cgroup.PodUID(cgroupName); uid != "" {
		t.Kind = Pod
		t.Pod = l.pods[uid]
		t.Pod.UID = uid
	}
	return t
}

// elsewhere adds the containers that are not below the pods' root, because the
// runtime was given another parent or none.
func (l *lister) elsewhere(tree Tree, roots Roots) error {
	for _, s := range l.view.Sandboxes {
		if !s.Ready || s.CgroupParent != "" && below(s.CgroupParent, roots.Pods) {
			continue
		}
		if s.CgroupParent == "" {
			l.defaultParents(tree, s)
			continue
		}
		if !strings.HasPrefix(s.CgroupParent, "/") {
			continue // A systemd slice's name; it is below the pods' root.
		}
		names, err := tree.Walk(s.CgroupParent, cgroup.LooksLikeContainer)
		if err != nil {
			return err
		}
		for _, name := range names {
			l.add(name)
		}
	}
	return nil
}

// defaultParents tries the places where runtimes put what has no parent.
func (l *lister) defaultParents(tree Tree, s inventory.Sandbox) {
	ids := []string{s.ID}
	for _, c := range l.view.Containers {
		if c.SandboxID == s.ID && c.Running {
			ids = append(ids, c.ID)
		}
	}
	for _, id := range ids {
		for _, parent := range []string{"/", "/k8s.io", "/default"} {
			if name := path.Join(parent, id); tree.Exists(name) {
				l.add(name)
				break
			}
		}
	}
}

func below(name, parent string) bool {
	parent = strings.TrimSuffix(parent, "/")
	return name == parent || strings.HasPrefix(name, parent+"/")
}
