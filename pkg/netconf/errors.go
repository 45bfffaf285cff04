package netconf

import "fmt"

// A FieldError is one thing wrong in a configuration.
type FieldError struct {
	// Field names where, for example "podCIDRs[1]"; empty for the whole.
	Field string
	// Value is what was found there, as JSON; empty where nothing was.
	Value string
	// Problem says what is wrong with it.
	Problem string
	// Example is a value that would be right, as JSON.
	Example string
}

// maxValue is how many bytes of a wrong value a message repeats.
const maxValue = 60

// Error returns field, value, problem and example in one line.
func (e *FieldError) Error() string {
	s := e.Field
	if e.Value != "" {
		v := e.Value
		if len(v) > maxValue {
			v = v[:maxValue] + "..."
		}
		s = fmt.Sprintf("%s %s", s, v)
	}
	if s != "" {
		s += ": "
	}
	s += e.Problem
	if e.Example != "" {
		s += ", for example " + e.Example
	}
	return s
}
