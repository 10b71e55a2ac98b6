// Command testapp is what runs in the containers of the node tests: small
// servers and misbehaviours, chosen by the first argument. It must never need
// anything of its image: it is a static binary.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage lists the commands; every flag has the form name=value.
const usage = `usage: testapp COMMAND [name=value ...]
  http        port=8080 healthy=true delay=0s   serve HTTP; see http.go for the paths
  tcp         port=8080                          accept connections and echo
  grpc        port=8080 service= status=SERVING  serve grpc.health.v1
  exit        after=0s code=0 message=           end; the message goes to the termination log
  stubborn    ready=                             ignore SIGTERM; write the file once it does
  logs        lines=0 rate=0 size=80             write numbered lines, 0 lines means for ever
  env                                            print the environment, then wait
  sleep       for=0s linger=0s ready=            wait for SIGTERM or for the time given; end so long after SIGTERM;
                                                 write the file once it waits
  take        mebibytes=0 path= unlink= files=0 threads=0 crash=
                                                 take memory, or with a path disk or files, or threads, then wait for
                                                 SIGTERM; a file that is unlinked stays open; with a file that says how
                                                 often it was started the second time takes disk at once and ends
  child       mebibytes=0                        have a child take memory and wait for SIGTERM, whatever becomes of the child
  stat        path=                              print type, mode, owner and content length, for exec
  cat                                            copy stdin to stdout, for exec and attach
  write       path= text=                        write a file, for exec
  get         url=                               print what an HTTP server answers, for exec
  call        socket= method=                    call a gRPC method, its code goes to the termination log
  true, false                                    end at once, for exec
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	flags, err := parse(os.Args[2:])
	if err == nil {
		err = dispatch(ctx, os.Args[1], flags)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testapp:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, command string, f flags) error {
	switch command {
	case "http":
		return serveHTTP(ctx, f)
	case "tcp":
		return serveTCP(ctx, f)
	case "grpc":
		return serveGRPC(ctx, f)
	case "exit":
		return exit(ctx, f)
	case "stubborn":
		return stubborn(f)
	case "logs":
		return writeLogs(ctx, f)
	case "env":
		fmt.Println(strings.Join(os.Environ(), "\n"))
		<-ctx.Done()
		return nil
	case "sleep":
		return sleep(ctx, f)
	case "take":
		return take(ctx, f)
	case "child":
		return child(ctx, f)
	case "idle":
		return idle(ctx, f)
	case "get":
		return get(ctx, f)
	case "call":
		return call(ctx, f)
	case "true":
		return nil
	case "false":
		os.Exit(1)
	case "stat":
		return stat(f)
	case "cat":
		return cat()
	case "write":
		return os.WriteFile(f.text("path", ""), []byte(f.text("text", "")), 0o644)
	}
	return fmt.Errorf("no command %q\n%s", command, usage)
}

// flags are the name=value arguments.
type flags map[string]string

func parse(args []string) (flags, error) {
	f := flags{}
	for _, a := range args {
		name, value, ok := strings.Cut(a, "=")
		if !ok {
			return nil, fmt.Errorf("argument %q is not name=value", a)
		}
		f[name] = value
	}
	return f, nil
}

func (f flags) text(name, otherwise string) string {
	if v, ok := f[name]; ok {
		return v
	}
	return otherwise
}

func (f flags) duration(name string) (time.Duration, error) {
	d, err := time.ParseDuration(f.text(name, "0s"))
	if err != nil {
		return 0, fmt.Errorf("argument %s: %w", name, err)
	}
	return d, nil
}

func (f flags) number(name string, otherwise int) (int, error) {
	text, ok := f[name]
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("argument %s: %w", name, err)
	}
	return n, nil
}
