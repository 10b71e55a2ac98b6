package main

import (
	"context"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// call calls a method with an empty message over a Unix socket, and leaves the
// code of the answer, and its words, in the termination log.
func call(ctx context.Context, f flags) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+f.text("socket", ""), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	got := status.Convert(conn.Invoke(ctx, f.text("method", ""), &emptypb.Empty{}, &emptypb.Empty{}))
	return os.WriteFile(terminationLog, []byte(got.Code().String()+": "+got.Message()), 0o644)
}
