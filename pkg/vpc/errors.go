package vpc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Class says what an error from a cloud means for what happens next. Nothing
// else about an error decides that.
type Class int

// The classes of errors. Their handling is described in docs/architecture.md.
const (
	Transient  Class = iota // unknown or passing: retry this route with backoff
	Throttled               // the account is over its rate: slow the whole table
	Quota                   // the table or account is full: at most one try a minute
	Exists                  // the destination is taken by another entry: read back, then plan again
	NotFound                // the object named in the call is not there
	InProgress              // a conflicting change is under way, or the table changed meanwhile: read back, retry
	Denied                  // credentials or permissions: at most one try a minute
	Invalid                 // the request can never work as it is: wait for the input to change
)

var classNames = [...]string{"Transient", "Throttled", "Quota", "Exists", "NotFound", "InProgress", "Denied", "Invalid"}

// String returns the class's name, as used in metrics and messages.
func (c Class) String() string {
	if c < 0 || int(c) >= len(classNames) {
		return fmt.Sprintf("Class(%d)", int(c))
	}
	return classNames[c]
}

// An Error is an error of a known class.
type Error struct {
	Class Class
	// Op is what was being done, for example "CreateRoute 10.244.1.0/24 in rtb-1".
	Op string
	// RetryAfter is how long the cloud asked to wait; 0 when it did not say.
	RetryAfter time.Duration
	// Err is the cloud's own error.
	Err error
}

// Error returns "OP: cause".
func (e *Error) Error() string {
	if e.Op == "" {
		return e.Err.Error()
	}
	return e.Op + ": " + e.Err.Error()
}

// Unwrap returns the cloud's own error.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error of a class; format and args are those of fmt.Errorf,
// %w included.
func Errorf(class Class, format string, args ...any) error {
	return &Error{Class: class, Err: fmt.Errorf(format, args...)}
}

// ClassOf returns the class of an error: that of the first Error in its chain,
// else Transient (deadlines and cancellations included).
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return Transient
}

// RetryAfter returns how long the cloud asked to wait, and false when the error
// carries no such hint.
func RetryAfter(err error) (time.Duration, bool) {
	var e *Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		return e.RetryAfter, true
	}
	return 0, false
}

// IsCancelled is true when the caller gave up, so the outcome at the cloud is
// unknown and the failure is not the cloud's.
func IsCancelled(err error) bool { return errors.Is(err, context.Canceled) }
