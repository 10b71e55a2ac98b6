// Command node is behind `make run`, `make cluster`, `make kubeadm` and `make
// clean-node`: it brings up a development node, or a cluster, and takes it away.
// It must never touch anything of the machine but its own instance and Debian
// packages that are missing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/services"
)

const usage = `usage: node [flags] COMMAND
  run      a standalone node with a sample static pod
  cluster  a cluster: etcd, kube-apiserver, controllers, scheduler, polylet on each node
  kubeadm  a cluster that kubeadm makes, its control plane in static pods
  clean    remove what run and cluster have left
  install  install the Debian packages that a node needs, where they are missing
flags:
`

// options are the command line's flags.
type options struct {
	containerd containerd.Version
	once       bool
	nodes      int
}

func main() {
	var o options
	flags := flag.NewFlagSet("node", flag.ExitOnError)
	runtime := flags.String("containerd", string(containerd.Built), `"2" builds containerd 2.x, "debian" takes the machine's`)
	flags.BoolVar(&o.once, "once", false, "stop as soon as everything is up, for trying it out in scripts")
	flags.IntVar(&o.nodes, "nodes", 1, "how many nodes a cluster has; those after the first have namespaces of their own")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.Parse(os.Args[1:]) // ExitOnError
	o.containerd = containerd.Version(*runtime)
	// A terminal that is closed is a person who has had enough, too.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// Whoever reads its lines may have ended before it: it takes away what it has made
	// all the same.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if err := dispatch(ctx, flags.Arg(0), o); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, command string, o options) error {
	switch command {
	case "run":
		return runNode(ctx, o)
	case "cluster":
		return runCluster(ctx, o)
	case "kubeadm":
		return runKubeadm(ctx, o)
	case "clean":
		return clean()
	case "install":
		return install.Packages(ctx, os.Stdout)
	}
	return fmt.Errorf("no command %q; use run, cluster, kubeadm, clean or install", command)
}

func clean() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("clean up a node: it unmounts and removes cgroups; run this as root")
	}
	if err := instance.CleanStale(); err != nil {
		return err
	}
	if err := services.Clean(); err != nil {
		return err
	}
	return instance.CleanKept(func(id string) { fmt.Printf("removed %s\n", id) })
}
