package cloud

import (
	"io"
	"net/http"
	"net/http/httptest"
)

// Direct returns a transport that carries requests straight to a handler,
// without a socket: the bytes are the same, and virtual time does not wait for
// the network. A dropped connection is io.ErrUnexpectedEOF.
func Direct(h http.Handler) http.RoundTripper { return direct{h} }

type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	answered := make(chan *http.Response, 1)
	go func() {
		// A dropped connection is the one panic that a handler may end in.
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
			close(answered)
		}()
		w := httptest.NewRecorder()
		in := r.Clone(r.Context())
		if in.Body == nil {
			in.Body = http.NoBody
		}
		in.RequestURI, in.RemoteAddr = r.URL.RequestURI(), "192.0.2.1:1234"
		if in.Host == "" {
			in.Host = r.URL.Host
		}
		defer in.Body.Close()
		d.handler.ServeHTTP(w, in)
		answered <- w.Result()
	}()
	select {
	case response, ok := <-answered:
		if !ok {
			return nil, io.ErrUnexpectedEOF
		}
		response.Request = r
		return response, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
