package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestRunByHand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"tencent", "--listen", "127.0.0.1:0"}, out)
		out.Close()
	}()
	lines := bufio.NewScanner(in)
	var url string
	for lines.Scan() && !strings.Contains(lines.Text(), "for the table") {
		for _, word := range strings.Fields(lines.Text()) {
			if strings.HasPrefix(word, "http://127.0.0.1:") {
				url = strings.TrimSuffix(word, ";")
			}
		}
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("X-TC-Action", "DescribeVpcs")
	go func() {
		if a, err := http.DefaultClient.Do(q); err == nil {
			a.Body.Close()
		}
	}()
	if !lines.Scan() || !strings.Contains(lines.Text(), "DescribeVpcs NoSuchVersion {}") {
		t.Errorf("printed for a call: %q", lines.Text())
	}
	cancel()
	for lines.Scan() { // until the writer closes
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"nowhere"}} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), "tencent") {
			t.Errorf("%v: %v, want the names of the clouds", args, err)
		}
	}
}
