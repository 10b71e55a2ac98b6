// Package browser drives a headless Chromium over the DevTools protocol: as
// much of it as a test of a page needs. It must never use a profile that it did
// not make, and never talk to anything but the page under test.
package browser

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/polylet/polylet/test/harness/process"
)

// Path is where Debian's package chromium puts it.
const Path = "/usr/bin/chromium"

// Config says how to start it.
type Config struct {
	// Dir is an empty directory for profile and log.
	Dir string
}

// Browser is a Chromium with one tab.
type Browser struct {
	process *process.Process
	profile string
	conn    *websocket.Conn
	done    chan struct{}

	mu       sync.Mutex
	next     int
	answers  map[int]chan answer
	problems []string
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// Start starts a Chromium and connects to its tab. Close it.
func Start(ctx context.Context, cfg Config) (*Browser, error) {
	profile := filepath.Join(cfg.Dir, "profile")
	b := &Browser{profile: profile, answers: map[int]chan answer{}, done: make(chan struct{})}
	var tab string
	b.process = process.New(process.Config{
		Name: "chromium", Path: Path, LogFile: filepath.Join(cfg.Dir, "chromium.log"),
		Env: []string{"HOME=" + cfg.Dir, "XDG_CONFIG_HOME=" + cfg.Dir, "XDG_CACHE_HOME=" + cfg.Dir},
		Args: []string{
			"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
			"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-address=127.0.0.1",
			"--remote-debugging-port=0", "--user-data-dir=" + profile, "about:blank",
		},
		ReadyWithin: 2 * time.Minute, StopWithin: 5 * time.Second,
		Ready: func(ctx context.Context) (err error) {
			tab, err = findTab(ctx, profile)
			return err
		},
	})
	if err := b.process.Start(ctx); err != nil {
		return nil, err
	}
	conn, res, err := websocket.DefaultDialer.DialContext(ctx, tab, nil)
	if res != nil {
		_ = res.Body.Close() // the connection lives on without it
	}
	if err != nil {
		b.process.Stop()
		return nil, fmt.Errorf("connect to Chromium's tab: %w", err)
	}
	b.conn = conn
	go b.receive()
	for _, domain := range []string{"Page.enable", "Runtime.enable", "Log.enable"} {
		if _, err := b.Call(ctx, domain, nil); err != nil {
			b.Close()
			return nil, err
		}
	}
	return b, nil
}

// findTab asks for the WebSocket address of the first tab.
func findTab(ctx context.Context, profile string) (string, error) {
	port, err := os.ReadFile(filepath.Join(profile, "DevToolsActivePort"))
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(string(port), "\n")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+first+"/json/list", http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var tabs []struct{ Type, WebSocketDebuggerURL string }
	if err := json.NewDecoder(res.Body).Decode(&tabs); err != nil {
		return "", err
	}
	for _, t := range tabs {
		if t.Type == "page" {
			return t.WebSocketDebuggerURL, nil
		}
	}
	return "", errors.New("Chromium has no tab yet")
}

// Close ends the browser and all of its processes: nothing writes into the
// profile any more when it returns.
func (b *Browser) Close() {
	if b.conn != nil {
		_ = b.conn.Close() // the process ends anyway
		<-b.done
	}
	b.process.Stop()
	endAll(b.process.Pid(), b.profile)
}

// Problems are the errors that the page's scripts, its loading and its content
// policy have caused so far.
func (b *Browser) Problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.problems...)
}

func (b *Browser) receive() {
	defer close(b.done)
	for {
		var m struct {
			ID     int
			Method string
			Params json.RawMessage
			answer
		}
		if err := b.conn.ReadJSON(&m); err != nil {
			b.mu.Lock()
			for _, waiting := range b.answers {
				close(waiting)
			}
			b.answers = nil
			b.mu.Unlock()
			return
		}
		b.mu.Lock()
		switch waiting := b.answers[m.ID]; {
		case m.ID != 0 && waiting != nil:
			delete(b.answers, m.ID)
			waiting <- m.answer
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded" && strings.Contains(string(m.Params), `"level":"error"`):
			b.problems = append(b.problems, string(m.Params))
		}
		b.mu.Unlock()
	}
}

// Call calls a method of the protocol and returns its result.
func (b *Browser) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	b.mu.Lock()
	if b.answers == nil {
		b.mu.Unlock()
		return nil, fmt.Errorf("%s: Chromium has ended", method)
	}
	b.next++
	id, waiting := b.next, make(chan answer, 1)
	b.answers[id] = waiting
	err := b.conn.WriteJSON(map[string]any{"id": id, "method": method, "params": params})
	b.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	select {
	case a, ok := <-waiting:
		switch {
		case !ok:
			return nil, fmt.Errorf("%s: Chromium has ended", method)
		case a.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		return a.Result, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// Open loads a page.
func (b *Browser) Open(ctx context.Context, url string) error {
	raw, err := b.Call(ctx, "Page.navigate", map[string]any{"url": url})
	if err != nil {
		return err
	}
	var got struct{ ErrorText string }
	if err := json.Unmarshal(raw, &got); err != nil || got.ErrorText != "" {
		return fmt.Errorf("open %s: %s %w", url, got.ErrorText, err)
	}
	return nil
}

// Eval computes an expression in the page and decodes its value into out, which
// may be nil. A promise is waited for.
func (b *Browser) Eval(ctx context.Context, expression string, out any) error {
	raw, err := b.Call(ctx, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true})
	if err != nil {
		return err
	}
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		return fmt.Errorf("evaluate %s: %w", expression, err)
	}
	if got.ExceptionDetails != nil {
		return fmt.Errorf("evaluate %s: %s", expression, got.ExceptionDetails.Exception.Description)
	}
	if out == nil || len(got.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(got.Result.Value, out)
}

// Text is what a person can read on the page.
func (b *Browser) Text(ctx context.Context) (text string, err error) {
	err = b.Eval(ctx, "document.body.innerText", &text)
	return text, err
}

// Press presses and releases a key, named as in KeyboardEvent.key.
func (b *Browser) Press(ctx context.Context, key string) error {
	params := map[string]any{"key": key}
	codes := map[string]int{"Enter": 13, "Escape": 27, "Tab": 9, "ArrowUp": 38, "ArrowDown": 40}
	if code, ok := codes[key]; ok {
		params["windowsVirtualKeyCode"] = code
		params["code"] = key
		if key == "Enter" {
			params["text"] = "\r"
		}
	} else {
		params["text"] = key
	}
	for _, kind := range []string{"keyDown", "keyUp"} {
		params["type"] = kind
		if kind == "keyUp" {
			delete(params, "text")
		}
		if _, err := b.Call(ctx, "Input.dispatchKeyEvent", params); err != nil {
			return err
		}
	}
	return nil
}

// Window sets the size of the window and whether the system prefers dark colours.
func (b *Browser) Window(ctx context.Context, width, height int, dark bool) error {
	if _, err := b.Call(ctx, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}); err != nil {
		return err
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	_, err := b.Call(ctx, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
	return err
}

// Screenshot writes the window as a PNG.
func (b *Browser) Screenshot(ctx context.Context, file string) error {
	raw, err := b.Call(ctx, "Page.captureScreenshot", map[string]any{"format": "png"})
	if err != nil {
		return err
	}
	var shot struct{ Data string }
	if err := json.Unmarshal(raw, &shot); err != nil {
		return fmt.Errorf("take a screenshot: %w", err)
	}
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		return fmt.Errorf("take a screenshot: %w", err)
	}
	return os.WriteFile(file, png, 0o644)
}
