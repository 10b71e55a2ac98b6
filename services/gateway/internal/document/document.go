package document

import (
	"bytes"
	"net/http"

	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// Configz is the document of /configz for a KubeletConfiguration as JSON; with
// an empty one it shows own.
func Configz(config []byte, own func() []byte) []byte {
	if len(bytes.TrimSpace(config)) <= len("{}") {
		config = own()
	}
	const head = `{"kubeletconfig":`
	body := make([]byte, 0, len(head)+len(config)+1)
	body = append(body, head...)
	body = append(body, config...)
	return append(body, '}')
}

// Disabled answers for what the configuration turned off.
func Disabled(message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		httperror.Text(w, http.StatusMethodNotAllowed, message)
	})
}
