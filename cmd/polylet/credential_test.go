package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/supervise"
	"github.com/polylet/polylet/internal/testkit/eventually"
)

// joining is a node that joins by TLS bootstrap.
func joining(t *testing.T, who supervise.Identity, log klog.Logger) (r *rootsPart, kubeconfig, pki string) {
	t.Helper()
	dir := t.TempDir()
	bootstrap := put(t, dir+"/bootstrap.conf", anyKubeconfig)
	kubeconfig, pki = filepath.Join(dir, "etc", "kubelet.conf"), filepath.Join(dir, "pki")
	loaded := load(t, "--kubeconfig="+kubeconfig, "--bootstrap-kubeconfig="+bootstrap, "--cert-dir="+pki, "--hostname-override=n1")
	return newRootsPart(func() *kubeletconfig.Loaded { return loaded }, who, log), kubeconfig, pki
}

// kubeadm removes the bootstrap kubeconfig when it gives up, and the certificate may come
// later: where the apiserver is then stands in the kubeconfig.
func TestRootWritesTheKubeconfigBeforeNodestatusHasACertificate(t *testing.T) {
	r, kubeconfig, pki := joining(t, supervise.Identity{}, klog.Background())
	r.prepare()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.follow(ctx) }()
	defer func() { cancel(); <-done }()
	says := func(server string) {
		t.Helper()
		eventually.Nil(t, func() error { // inotify: no bubble
			text, err := os.ReadFile(kubeconfig)
			if err == nil && (!strings.Contains(string(text), pki+"/kubelet-client-current.pem") || !strings.Contains(string(text), server)) {
				err = fmt.Errorf("the kubeconfig is %q", text)
			}
			return err
		})
	}
	says("https://127.0.0.1:1")
	put(t, r.source.Bootstrap, strings.ReplaceAll(anyKubeconfig, "127.0.0.1:1", "127.0.0.1:2")) // joined to another cluster
	says("https://127.0.0.1:2")
}

func TestTheCertificatesDirectoryIsNodestatusOwnAndIsAgainWhenItIsMadeAnew(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives a directory to another user, which needs root")
	}
	var said []string
	r, _, pki := joining(t, supervise.Identity{Drop: true, UID: 60899}, funcr.New(func(_, args string) {
		if strings.Contains(args, `"error"=`) {
			said = append(said, args)
		}
	}, funcr.Options{}))
	owner := func() uint32 {
		info, err := os.Stat(pki)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Uid
	}
	r.prepare()
	if owner() != 60899 {
		t.Errorf("it is user %d's", owner())
	}
	now := time.Now()
	if err := os.Rename(pki, pki+".away"); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{0, anewAfter / 2} {
		if r.look(now.Add(after)); len(said) > 0 {
			t.Errorf("said %q", said)
		}
		if _, err := os.Stat(pki); !errors.Is(err, fs.ErrNotExist) {
			t.Error("it is made anew before whoever has removed it can put another there")
		}
	}
	if r.look(now.Add(anewAfter)); owner() != 60899 {
		t.Errorf("made anew it is user %d's", owner())
	}
	if err := errors.Join(os.Remove(pki), os.Mkdir(pki, 0o755)); err != nil {
		t.Fatal(err)
	}
	if r.look(now); owner() != 60899 {
		t.Errorf("one that somebody has made is user %d's", owner())
	}
	// What is no kubelet's stays whose it is, is said once, and stops nothing.
	if err := errors.Join(os.Remove(pki), os.Mkdir(pki, 0o755), os.WriteFile(pki+"/ca.key", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r.look(now)
	r.look(now)
	if len(said) != 1 || !strings.Contains(said[0], "ca.key") || owner() != 0 {
		t.Errorf("said %q; it is user %d's", said, owner())
	}
}

// nodestatus could exchange the kubeconfig, and with it say which apiserver podsync obeys.
func TestADirectoryInWhichTheKubeconfigBelongsIsNotGivenToNodestatus(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives a directory to another user, which needs root")
	}
	for _, flag := range []string{"--kubeconfig=", "--bootstrap-kubeconfig="} {
		var said string
		log := funcr.New(func(_, text string) { said += text }, funcr.Options{})
		dir := t.TempDir()
		loaded := load(t, "--kubeconfig=/k", "--bootstrap-kubeconfig=/b", flag+dir+"/pki/later", "--cert-dir="+dir+"/pki", "--hostname-override=n1")
		r := newRootsPart(func() *kubeletconfig.Loaded { return loaded }, supervise.Identity{Drop: true, UID: 60899}, log)
		r.prepare()
		r.look(time.Now())
		info, err := os.Stat(dir + "/pki")
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 || !strings.Contains(said, dir+"/pki/later lies in --cert-dir") {
			t.Errorf("%s: %v, said %q", flag, err, said)
		}
	}
}

// nodestatus could else say who may do what on the node, or which pods it has.
func TestADirectoryInWhichWhatRootObeysBelongsIsNotGivenToNodestatus(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("would give a directory to another user, which needs root")
	}
	for name, field := range map[string]string{
		"the authority of clients": "authentication: {x509: {clientCAFile: DIR/pki/ca.crt}}", "static pods": "staticPodPath: DIR/pki/manifests",
	} {
		dir := t.TempDir()
		config := put(t, dir+"/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+strings.ReplaceAll(field, "DIR", dir)+"\n")
		loaded := load(t, "--config="+config, "--kubeconfig="+dir+"/kubelet.conf", "--bootstrap-kubeconfig="+put(t, dir+"/bootstrap.conf", anyKubeconfig), "--cert-dir="+dir+"/pki", "--hostname-override=n1")
		var said string
		log := funcr.New(func(_, args string) { said += args }, funcr.Options{})
		newRootsPart(func() *kubeletconfig.Loaded { return loaded }, supervise.Identity{Drop: true, UID: 60899}, log).prepare()
		info, err := os.Stat(dir + "/pki")
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 || !strings.Contains(said, "lies in --cert-dir") {
			t.Errorf("%s: %v, %v; logged %q", name, info, err, said)
		}
	}
}

func TestWhereNobodyAsksForCertificatesTheirDirectoryStaysAsItIs(t *testing.T) {
	for name, args := range map[string][]string{"standalone": {"--rotate-certificates"}, "not rotated": {"--kubeconfig=/k"}} {
		loaded := load(t, append(args, "--cert-dir="+t.TempDir(), "--hostname-override=n1")...)
		r := newRootsPart(func() *kubeletconfig.Loaded { return loaded }, supervise.Identity{Drop: true, UID: 60899}, klog.Background())
		r.prepare()
		r.follow(t.Context())
		if r != nil {
			t.Errorf("%s: something is prepared", name)
		}
	}
}

// Who has named a serving certificate beside serverTLSBootstrap and takes it away while the
// node runs has nodestatus ask for one from then on.
func TestTheDirectoryIsNodestatusOwnOnceAServingCertificateIsAskedForInsteadOfANamedOne(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives a directory to another user, which needs root")
	}
	pki, config := t.TempDir(), aConfiguration+"serverTLSBootstrap: true\n"
	flags := []string{"--kubeconfig=/k", "--cert-dir=" + pki, "--hostname-override=n1"}
	named := load(t, append(flags, "--config="+written(t, "k.yaml", config+"tlsCertFile: /x\ntlsPrivateKeyFile: /y\n"))...)
	asked := load(t, append(flags, "--config="+written(t, "k.yaml", config))...)
	node := &nodeRun{loaded: named, log: klog.Background()}
	node.hand(named, 1, named.Flags)
	node.roots = newRootsPart(node.current, supervise.Identity{Drop: true, UID: 60899}, klog.Background())
	owner := func() uint32 {
		info, err := os.Stat(pki)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Uid
	}
	node.roots.prepare()
	node.roots.look(time.Now())
	if owner() != 0 {
		t.Error("a directory that nobody is to write to is given away")
	}
	if err := (&live{node: node}).Put(asked, 2); err != nil || owner() != 60899 {
		t.Errorf("%v; it is user %d's before nodestatus asks", err, owner())
	}
}

// A directory that was made at once would stand in the way of one that is put back.
func TestAChangeOfTheConfigurationMakesNoDirectoryThatSomebodyHasRemoved(t *testing.T) {
	pki := filepath.Join(t.TempDir(), "pki")
	flags := []string{"--kubeconfig=/k", "--cert-dir=" + pki, "--hostname-override=n1", "--rotate-certificates"}
	before, after := load(t, flags...), load(t, append(flags, "--max-pods=7")...)
	node := &nodeRun{loaded: before, log: klog.Background()}
	node.hand(before, 1, before.Flags)
	node.roots = newRootsPart(node.current, supervise.Identity{}, klog.Background())
	node.roots.prepare()
	if err := os.Rename(pki, pki+".kept"); err != nil {
		t.Fatal(err)
	}
	if err := (&live{node: node}).Put(after, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(pki); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is made: %v", err)
	}
}
