package vpc

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestErrorsTellTheirClass(t *testing.T) {
	cause := errors.New("cause")
	for _, tt := range []struct {
		name  string
		err   error
		class Class
		after time.Duration // 0 for no hint
		text  string
	}{
		{"made with Errorf", Errorf(Quota, "table full: %w", cause), Quota, 0, "table full: cause"},
		{"with an operation and a hint", &Error{Class: Throttled, Op: "CreateRoute", RetryAfter: time.Second, Err: cause}, Throttled, time.Second, "CreateRoute: cause"},
		{"wrapped", fmt.Errorf("apply: %w", Errorf(Denied, "no: %w", cause)), Denied, 0, "apply: no: cause"},
		{"joined: the first one counts", errors.Join(Errorf(Exists, "a: %w", cause), Errorf(Quota, "b")), Exists, 0, "a: cause\nb"},
		{"without a class", cause, Transient, 0, "cause"},
		{"a deadline", fmt.Errorf("x: %w: %w", context.DeadlineExceeded, cause), Transient, 0, "x: context deadline exceeded: cause"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			after, ok := RetryAfter(tt.err)
			if ClassOf(tt.err) != tt.class || after != tt.after || ok != (tt.after > 0) {
				t.Errorf("class %v, wait %v, %v; want %v, %v", ClassOf(tt.err), after, ok, tt.class, tt.after)
			}
			if !errors.Is(tt.err, cause) || tt.err.Error() != tt.text {
				t.Errorf("error %q lost its cause or its text %q", tt.err, tt.text)
			}
		})
	}
}

func TestIsCancelled(t *testing.T) {
	if !IsCancelled(&Error{Class: Transient, Err: fmt.Errorf("x: %w", context.Canceled)}) {
		t.Error("a cancellation is not seen")
	}
	if IsCancelled(context.DeadlineExceeded) || IsCancelled(nil) {
		t.Error("what is no cancellation is taken for one")
	}
}

func TestClassNames(t *testing.T) {
	for c := Transient; c <= Invalid; c++ {
		if name := c.String(); name == "" || name[0] == 'C' {
			t.Errorf("class %d has no name: %q", int(c), name)
		}
	}
	if got := Class(99).String(); got != "Class(99)" {
		t.Errorf("an unknown class is called %q", got)
	}
}
