// Package report is how a benchmark says what it found: figures of ours beside a
// peer's, measured in the same run, as a table for people and as JSON for
// programs. It must not measure anything.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

// A Figure is one thing measured twice in one run: ours and the peer's.
type Figure struct {
	Name string `json:"name"`
	// Unit is that of Ours and Peer: "ms", "MB" ...
	Unit string  `json:"unit"`
	Ours float64 `json:"ours"`
	Peer float64 `json:"peer"`
	// Against names the peer.
	Against string `json:"against"`
	// Ratio is Ours by Peer, and 0 where the peer has no figure.
	Ratio float64 `json:"ratio"`
	// Goal is the most that Ratio may be, or the least where Least says so; nil
	// where nothing was promised.
	Goal  *float64 `json:"goal"`
	Least bool     `json:"least,omitempty"`
	// Met is whether the goal is reached; nil without one.
	Met *bool `json:"met"`
}

// New is the figure of two measurements, without a goal.
func New(name, unit string, ours float64, against string, peer float64) Figure {
	f := Figure{Name: name, Unit: unit, Ours: ours, Peer: peer, Against: against}
	if peer != 0 {
		f.Ratio = ours / peer
	}
	return f
}

// AtMost returns the figure with a goal for its ratio.
func (f Figure) AtMost(goal float64) Figure {
	met := f.Ratio <= goal && f.Peer != 0
	f.Goal, f.Met = &goal, &met
	return f
}

// AtLeast returns the figure with a goal for its ratio that is to be reached or
// passed: more is better.
func (f Figure) AtLeast(goal float64) Figure {
	met := f.Ratio >= goal && f.Peer != 0
	f.Goal, f.Least, f.Met = &goal, true, &met
	return f
}

// Within is the figure of a measurement that may be as large as a limit, which
// may be 0.
func Within(name, unit string, ours, limit float64) Figure {
	f := New(name, unit, ours, "the limit", limit).AtMost(1)
	*f.Met = ours <= limit
	return f
}

// Milliseconds is a duration in the unit of the reports.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Median returns the middle of the values, the upper one of two, and 0 of none.
func Median[T ~int64 | ~float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Table writes the figures for people.
func Table(w io.Writer, figures []Figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIGURE\tUNIT\tOURS\tPEER\tAGAINST\tRATIO\tGOAL\tMET")
	for _, f := range figures {
		goal, met := "-", "-"
		if f.Goal != nil {
			bound := "≤"
			if f.Least {
				bound = "≥"
			}
			goal, met = fmt.Sprintf("%s %.2f", bound, *f.Goal), "no"
			if *f.Met {
				met = "yes"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%.2f\t%.2f\t%s\t%.2f\t%s\t%s\n", f.Name, f.Unit, f.Ours, f.Peer, f.Against, f.Ratio, goal, met)
	}
	return t.Flush()
}

// JSON writes the figures for programs: an array with an object for each.
func JSON(w io.Writer, figures []Figure) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(figures)
}

// Save writes the figures as JSON to a file, whose folder it makes.
func Save(path string, figures []Figure) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	return JSON(f, figures)
}
