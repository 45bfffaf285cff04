package world

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// A Pipe carries requests to a handler within the process, over nothing that
// the clock of a bubble would not wait for.
type Pipe struct{ Handler http.Handler }

// RoundTrip has the handler answer on a goroutine of its own.
func (p Pipe) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	body, out := io.Pipe()
	w := &pipeWriter{out: out, header: http.Header{}, begun: make(chan int, 1)}
	asked := r.Clone(ctx)
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	go func() {
		p.Handler.ServeHTTP(w, asked)
		w.WriteHeader(http.StatusOK)
		_ = out.Close() // never fails
		_ = asked.Body.Close()
	}()
	context.AfterFunc(ctx, func() { out.CloseWithError(context.Canceled) })
	select {
	case code := <-w.begun:
		return &http.Response{
			StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: w.header.Clone(), Body: &pipeBody{body, cancel}, ContentLength: -1, Request: r,
		}, nil
	case <-ctx.Done():
		cancel()
		return nil, ctx.Err()
	}
}

type pipeWriter struct {
	out    *io.PipeWriter
	header http.Header
	once   sync.Once
	begun  chan int
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(code int) { w.once.Do(func() { w.begun <- code }) }

func (w *pipeWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(b)
}

// A pipeBody ends the handler's work when it is closed.
type pipeBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *pipeBody) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}
