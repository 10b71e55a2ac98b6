// Package profile saves profiles of polylet's processes, CPU and memory, while something
// is measured. It must never be part of what is measured: who wants figures has no profiles.
package profile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/test/harness/node"
)

// Heaps writes the heap of each of polylet's processes, as
// PROCESS-WHEN.heap, when there is a directory for them.
func Heaps(ctx context.Context, dir string, n *node.Node, when string) error {
	if dir == "" || n.SocketDir == "" || len(n.Processes) == 1 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name := range n.Processes {
		path := filepath.Join(dir, name+"-"+when+".heap")
		request := &commonv1.GetProfileRequest{Name: "heap", Gc: true}
		if err := Save(ctx, filepath.Join(n.SocketDir, name+".sock"), path, request); err != nil {
			return fmt.Errorf("heap profile of %s: %w", name, err)
		}
	}
	return nil
}

// Save writes one profile of the process behind the socket.
func Save(ctx context.Context, socket, path string, request *commonv1.GetProfileRequest) error {
	conn, err := rpc.Dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := commonv1.NewCommonServiceClient(conn).GetProfile(ctx, request)
	if err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return err
		}
		if _, err := out.Write(piece.GetData()); err != nil {
			return err
		}
	}
}
