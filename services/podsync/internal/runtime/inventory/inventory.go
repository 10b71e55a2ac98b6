// Package inventory lists all sandboxes and containers that the runtime has. A
// runtime answers in one message of a bounded size (16 MiB in containerd), and what
// pods have left that ended long ago may be more than that: then they are listed pod
// by pod.
//
// A pod of which even that is too much is left out, and named: the others do not
// depend on it.
//
// It owns how all of them are found. It must never keep what it found, and never give
// a part of them as if it were all.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// Client asks the runtime; *cri.Client has it.
type Client interface {
	// ListSandboxes and ListContainers list those of one pod, or all when uid is empty.
	ListSandboxes(ctx context.Context, uid string) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, uid string) ([]*runtimeapi.Container, error)
	// ReadySandboxes and RunningContainers list those of all pods.
	ReadySandboxes(ctx context.Context) ([]*runtimeapi.PodSandbox, error)
	RunningContainers(ctx context.Context) ([]*runtimeapi.Container, error)
}

// Known gives the pods that there may be something of; it is asked only when not
// everything fits into one message.
type Known func() ([]types.UID, error)

// List is what the runtime has.
type List struct {
	Sandboxes  []*runtimeapi.PodSandbox
	Containers []*runtimeapi.Container
	// TooLarge are the pods, each with the runtime's answer, of which there is too much
	// for one message: their sandboxes, containers or both may be missing in the list.
	TooLarge map[types.UID]error
}

// All lists everything. Of pods that are neither known, nor have a ready sandbox or
// a container, it may miss what is left when there is too much for one message.
func All(ctx context.Context, client Client, known Known) (List, error) {
	sandboxes, err := client.ListSandboxes(ctx, "")
	manySandboxes := cri.IsTooLarge(err)
	if err != nil && !manySandboxes {
		return List{}, fmt.Errorf("list sandboxes: %w", err)
	}
	containers, err := client.ListContainers(ctx, "")
	manyContainers := cri.IsTooLarge(err)
	if err != nil && !manyContainers {
		return List{}, fmt.Errorf("list containers: %w", err)
	}
	list := List{Sandboxes: sandboxes, Containers: containers}
	if !manySandboxes && !manyContainers {
		return list, nil
	}
	pods, err := find(ctx, client, known, sandboxes, containers)
	if err != nil {
		return List{}, err
	}
	list.TooLarge = map[types.UID]error{}
	if manySandboxes {
		if list.Sandboxes, err = each(ctx, pods, "sandboxes", client.ListSandboxes, list.TooLarge); err != nil {
			return List{}, err
		}
	}
	if manyContainers {
		if list.Containers, err = each(ctx, pods, "containers", client.ListContainers, list.TooLarge); err != nil {
			return List{}, err
		}
	}
	return list, nil
}

// Containers lists all containers; see List for pods of which there are too many.
func Containers(ctx context.Context, client Client, known Known) (list List, err error) {
	list.Containers, err = client.ListContainers(ctx, "")
	if !cri.IsTooLarge(err) {
		return list, err
	}
	pods, err := find(ctx, client, known, nil, nil)
	if err != nil {
		return List{}, err
	}
	list.TooLarge = map[types.UID]error{}
	list.Containers, err = each(ctx, pods, "containers", client.ListContainers, list.TooLarge)
	return list, err
}

// find collects the pods: those that are known, that are in what was listed, and
// that run. What runs may be too much for one message, too; those are known.
func find(ctx context.Context, client Client, known Known, sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) (map[string]bool, error) {
	uids, err := known()
	if err != nil {
		return nil, fmt.Errorf("find the pods whose sandboxes and containers are to be listed one by one: %w", err)
	}
	pods := make(map[string]bool, len(uids))
	for _, uid := range uids {
		pods[string(uid)] = true
	}
	ready, err := client.ReadySandboxes(ctx)
	if err != nil && !cri.IsTooLarge(err) {
		return nil, fmt.Errorf("list ready sandboxes: %w", err)
	}
	running, err := client.RunningContainers(ctx)
	if err != nil && !cri.IsTooLarge(err) {
		return nil, fmt.Errorf("list running containers: %w", err)
	}
	add(pods, sandboxes, ready)
	add(pods, containers, running)
	delete(pods, "") // not made by a node agent
	return pods, nil
}

func add[T interface{ GetLabels() map[string]string }](pods map[string]bool, lists ...[]T) {
	for _, list := range lists {
		for _, item := range list {
			pods[item.GetLabels()[cri.LabelPodUID]] = true
		}
	}
}

// each lists pod by pod, and says which are too large for that.
func each[T any](ctx context.Context, pods map[string]bool, what string, list func(context.Context, string) ([]T, error), tooLarge map[types.UID]error) ([]T, error) {
	var all []T
	for uid := range pods {
		part, err := list(ctx, uid)
		if cri.IsTooLarge(err) {
			tooLarge[types.UID(uid)] = fmt.Errorf("list the %s of pod %s: %w", what, uid, err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the %s of pod %s, since all are too many for one message: %w", what, uid, err)
		}
		all = append(all, part...)
	}
	return all, nil
}

// OnDisk finds the pods that have a directory below podsDir (<uid>) or podLogsDir
// (<namespace>_<name>_<uid>), which both are there before a pod's first sandbox. Where a
// directory's name is empty nothing is looked for.
func OnDisk(podsDir, podLogsDir string) ([]types.UID, error) {
	var uids []types.UID
	for parts, dir := range map[int]string{1: podsDir, 3: podLogsDir} {
		if dir == "" {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			// Only the UID may have an underscore itself, as a manifest may give it.
			if name := strings.SplitN(e.Name(), "_", parts); e.IsDir() && len(name) == parts {
				uids = append(uids, types.UID(name[parts-1]))
			}
		}
	}
	return uids, nil
}
