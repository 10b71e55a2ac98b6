// Command csidriver is a CSI driver for tests: each volume is a tmpfs that holds the file "id"
// with the volume's id, or a loop device of 1 MiB. A file in the directory of faults,
// called as what is asked of it ("NodePublishVolume", or "NodePublishVolume done" for
// after it), makes that hang until the file is gone when it is empty, and else fail with
// the code and message in it, e.g. "Internal no room".
//
// A file "max-volumes" there changes how many volumes it says that the node may have.
//
// It must never keep anything: it can be killed at any time, and the next one goes on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "csidriver:", err)
		os.Exit(1)
	}
}

func run() error {
	name := flag.String("name", "csi.polylet.test", "the driver's name")
	node := flag.String("node-id", "node", "its name of the node")
	sockets := flag.String("sockets", "", "directory of its socket")
	registry := flag.String("registry", "", "where it registers itself, e.g. /var/lib/kubelet/plugins_registry")
	faults := flag.String("faults", "", "directory of faults")
	most := flag.Int64("max-volumes", 0, "how many volumes the node may have")
	topology := flag.String("topology", "", "key=value of where the node is")
	stage := flag.Bool("stage", false, "volumes are staged for the node, and published from there")
	grow := flag.Bool("grow", false, "volumes grow while they are used")
	stats := flag.Bool("stats", false, "say how full volumes are")
	volumes := flag.String("volumes", "", "directory of its controller's volumes, which makes, attaches and grows them")
	requests := flag.String("requests", "", "file to which each request adds a line with its call's name and itself as JSON")
	calls := flag.String("calls", "", "file to which each call with a volume adds a line with its name")
	flag.Parse()
	cfg := fakecsi.Config{
		Name: *name, NodeID: *node, MaxVolumes: *most, Mount: mount, Bind: bind, Flagged: flagged, Mounted: mounted, Volumes: *volumes,
		Device:  func(volume, target string) error { return device(*sockets, volume, target) },
		Free:    func(volume string) error { return free(*sockets, volume) },
		Unmount: func(target string) error { return unix.Unmount(target, unix.UMOUNT_NOFOLLOW) },
	}
	var driver *fakecsi.Driver
	cfg.Fault = func(ctx context.Context, at string) error {
		if raw, err := os.ReadFile(filepath.Join(*faults, "max-volumes")); err == nil && at == "NodeGetInfo" {
			most, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
			driver.SetMaxVolumes(most)
		}
		if *calls != "" && !strings.HasSuffix(at, " done") {
			if err := note(*calls, at); err != nil {
				return err
			}
		}
		return fault(ctx, filepath.Join(*faults, at))
	}
	if *requests != "" {
		cfg.Asked = func(call string, r any) {
			if m, is := r.(proto.Message); is {
				_ = note(*requests, call+" "+(protojson.MarshalOptions{}).Format(m)) // the test misses it
			}
		}
	}
	if *stage {
		cfg.Can = append(cfg.Can, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	}
	if *grow {
		cfg.Can = append(cfg.Can, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
		cfg.Grow = resize
	}
	if key, value, ok := strings.Cut(*topology, "="); ok {
		cfg.Topology = map[string]string{key: value}
	}
	if *stats {
		cfg.Can = append(cfg.Can, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	}
	driver = fakecsi.New(cfg)
	stop, err := driver.Serve(*sockets, *registry)
	if err != nil {
		return err
	}
	ctx, end := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer end()
	<-ctx.Done()
	stop()
	return nil
}

// note adds a line to a file.
func note(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

func mount(volume, target string, readOnly bool) error {
	if err := unix.Mount("tmpfs", target, "tmpfs", 0, size); err != nil {
		return err
	}
	return fill(volume, target, readOnly)
}

const size = "size=1m,mode=0777"

// fill says in a volume which one it is.
func fill(volume, target string, readOnly bool) error {
	if err := os.WriteFile(filepath.Join(target, "id"), []byte(volume), 0o644); err != nil {
		return err
	}
	if readOnly {
		return unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}

// flagged mounts with flags, as drivers do: by mount(8), which is told them as they came.
func flagged(volume, staged, target string, readOnly bool, flags []string) error {
	options := strings.Join(flags, ",")
	arguments := []string{"-t", "tmpfs", "-o", size + "," + options, "tmpfs", target}
	if staged != "" {
		arguments = []string{"-o", "bind," + options, staged, target}
	}
	if out, err := exec.Command("mount", arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("mount %s: %w: %s", strings.Join(arguments, " "), err, out)
	}
	if staged == "" {
		return fill(volume, target, readOnly)
	}
	if readOnly {
		return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}

// resize gives a tmpfs another size: a byte for each KiB that is asked for.
func resize(_, target string, bytes int64) error {
	return unix.Mount("", target, "", unix.MS_REMOUNT, fmt.Sprintf("size=%d", bytes>>10))
}

// bind mounts what is staged.
func bind(staged, target string, readOnly bool) error {
	if err := unix.Mount(staged, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if readOnly {
		return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}

func mounted(target string) (bool, error) {
	is, err := mountinfo.Mounted(target)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return is, err
}

// fault is what the file says.
func fault(ctx context.Context, file string) error {
	for {
		said, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		word, message, _ := strings.Cut(strings.TrimSpace(string(said)), " ")
		if word != "" {
			return status.Error(code(word), message)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// code is that of its name.
func code(name string) codes.Code {
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if c.String() == name || strconv.Itoa(int(c)) == name {
			return c
		}
	}
	return codes.Unknown
}
