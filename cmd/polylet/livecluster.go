package main

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/liveconf/assigned"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/watch"
)

// assignedFile is what has become of the cluster's configuration, in nodestatus's directory
// of copies.
const assignedFile = "config-assigned.json"

// mostOfADocument is how much nodestatus may send at once: a ConfigMap has at most 1 MiB.
const mostOfADocument = 2 << 20

// errNoCluster is why the cluster cannot be a source.
var errNoCluster = errors.New("--dynamic-config-dir: there is no apiserver to take a configuration from: give --kubeconfig too, or leave it out")

// errClusterUnowned is why it cannot be one where nobody owns the configuration.
var errClusterUnowned = errors.New("--dynamic-config-dir needs an owner of the configuration: take --live-config=false away, or this flag")

// openCluster makes the cluster a source over the files.
func (l *live) openCluster(flags *kubeletconfig.Flags, load func(*kubeletconfig.Over) (*kubeletconfig.Loaded, error), check func(*kubeletconfig.Loaded) error) error {
	if flags.Kubeconfig == "" && flags.BootstrapKubeconfig == "" {
		return errNoCluster
	}
	l.cluster = assigned.Open(assigned.Config{
		Dir: flags.DynamicConfigDir, Node: l.node.loaded.NodeName, Build: buildinfo.Get().String(), Load: load, Check: check,
		Changed: l.shown.Set, Deadline: flags.ConfigDeadline, Log: l.node.log.WithName("configuration"),
	})
	return nil
}

// runs notes which configuration the services get.
func (l *live) runs(loaded *kubeletconfig.Loaded) {
	if l.cluster != nil {
		l.cluster.Runs(loaded)
	}
}

// followCluster asks nodestatus what the cluster has assigned, and hears of changes, until
// ctx is done. What was assigned before stays until nodestatus says something else.
func (l *live) followCluster(ctx context.Context) {
	conn, err := l.dial(service.Nodestatus)
	if err != nil {
		l.node.log.Error(err, "What the cluster assigns will not be known")
		return
	}
	defer conn.Close()
	client := nodestatusv1.NewNodeStatusServiceClient(conn)
	_ = watch.Follow(ctx, watch.Follower[*nodestatusv1.WatchAssignedConfigurationResponse]{ // ends with ctx, only
		Name:    "the cluster's configuration",
		Backoff: backoff.Config{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.2},
		Connect: func(ctx context.Context) (func() (*nodestatusv1.WatchAssignedConfigurationResponse, error), error) {
			stream, err := client.WatchAssignedConfiguration(ctx, &nodestatusv1.WatchAssignedConfigurationRequest{}, grpc.MaxCallRecvMsgSize(mostOfADocument))
			if err != nil {
				return nil, err
			}
			return stream.Recv, nil
		},
		Header: func(f *nodestatusv1.WatchAssignedConfigurationResponse) watch.Header {
			return watch.Header{Epoch: f.GetEpoch(), Revision: f.GetRevision(), Snapshot: f.GetSnapshot()}
		},
		Handle: func(_ context.Context, f *nodestatusv1.WatchAssignedConfigurationResponse) error {
			return l.take(f.GetAssigned())
		},
	})
}

// take takes in what nodestatus says, which may have been taken over.
func (l *live) take(a *nodestatusv1.AssignedConfiguration) error {
	next := documentOf(a)
	if err := next.CheckNames(); err != nil {
		return err
	}
	l.cluster.Offer(next)
	return nil
}

func documentOf(a *nodestatusv1.AssignedConfiguration) *assigned.Document {
	if a == nil {
		return nil
	}
	return &assigned.Document{
		Namespace: a.GetNamespace(), Name: a.GetName(), Key: a.GetKey(), UID: a.GetUid(), ResourceVersion: a.GetResourceVersion(), Text: a.GetDocument(),
	}
}

// showCluster has nodestatus tell on the Node what has become of what is assigned, until
// ctx is done.
func (l *live) showCluster(ctx context.Context) {
	var last *assigned.View
	retry := backoff.New(backoff.Config{Initial: 500 * time.Millisecond, Max: 10 * time.Second})
	for failing := false; ctx.Err() == nil; {
		if view := l.cluster.View(); last == nil || view != *last {
			err := l.writeForNodestatus(assignedFile, view)
			if last = &view; err != nil {
				last = nil
			}
			if err != nil && !failing {
				l.node.log.Error(err, "What has become of the cluster's configuration cannot be shown")
			}
			failing = err != nil
		}
		l.shown.Wait(ctx, retry, failing)
	}
}

// writeForNodestatus writes a file into nodestatus's directory of copies, for it to read.
func (l *live) writeForNodestatus(name string, value any) error {
	dir, gid := l.node.copyDir(service.Nodestatus), -1
	if identity := l.identities[service.Nodestatus]; identity.Drop {
		gid = identity.GID
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := ownDir(dir, gid); err != nil {
		return err
	}
	return fsatomic.WriteFileOwned(filepath.Join(dir, name), raw, copyMode, -1, gid)
}
