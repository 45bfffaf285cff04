// Command gotest runs "go test" with the arguments it is given and prints what a
// person wants to read: the output of what failed and one closing line per
// package. It fails on what "go test" lets pass: with VPCROUTE_TEST_STRICT set,
// as in CI, a skipped test, or a package with tests that ran none of them, is a
// failure. It must not decide which tests run, nor judge their output.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		return 1
	}
	r := newReport(os.Stdout)
	readErr := r.read(stdout)
	waitErr := cmd.Wait()
	ok := r.close(os.Getenv("VPCROUTE_TEST_STRICT") != "")
	if err := errors.Join(readErr, waitErr); err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		return 1
	}
	if !ok {
		return 1
	}
	return 0
}

// An event is one line of "go test -json"; see "go doc test2json".
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

// A report follows the events of one run.
type report struct {
	w       io.Writer
	output  map[string][]string // of tests that have not ended, by package and test
	ran     map[string]int      // tests that ended, by package
	skipped []string
	idle    []string // packages that passed without running a test
	passed  int
	failed  int
}

func newReport(w io.Writer) *report {
	return &report{w: w, output: map[string][]string{}, ran: map[string]int{}}
}

// read follows the events until the stream ends. A line that is no event is
// printed as it is: "go test" passes on what a test binary writes past it.
func (r *report) read(stream io.Reader) error {
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil {
				r.add(e)
			} else {
				fmt.Fprint(r.w, line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the events of go test: %w", err)
		}
	}
}

func (r *report) add(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.w, e.Output)
	case "output":
		r.output[key] = append(r.output[key], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(e, key)
		}
		delete(r.output, key)
	}
}

func (r *report) endTest(e event, key string) {
	r.ran[e.Package]++
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
		fmt.Fprint(r.w, strings.Join(r.output[key], ""))
	case "skip":
		// "go test" reports a package without test files as skipped, with no Test.
		r.skipped = append(r.skipped, key+"\n"+strings.Join(r.output[key], ""))
	}
}

func (r *report) endPackage(e event) {
	lines := r.output[e.Package+" "]
	if e.Action == "fail" {
		// A test that a crash or a time-out cut off has no end of its own.
		for _, key := range slices.Sorted(maps.Keys(r.output)) {
			if strings.HasPrefix(key, e.Package+" ") && key != e.Package+" " {
				lines = append(slices.Clone(r.output[key]), lines...)
			}
		}
		fmt.Fprint(r.w, strings.Join(lines, ""))
		return
	}
	if e.Action == "pass" && r.ran[e.Package] == 0 {
		r.idle = append(r.idle, e.Package)
		fmt.Fprint(r.w, strings.Join(lines, ""))
		return
	}
	if len(lines) > 0 {
		fmt.Fprint(r.w, lines[len(lines)-1])
	}
}

// close prints the totals and says whether the run counts as a success.
func (r *report) close(strict bool) bool {
	for _, s := range r.skipped {
		fmt.Fprintln(r.w, "skipped:", s)
	}
	for _, p := range r.idle {
		fmt.Fprintln(r.w, "ran no test:", p)
	}
	fmt.Fprintf(r.w, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skipped))
	if !strict {
		return r.failed == 0
	}
	if len(r.skipped)+len(r.idle) > 0 {
		fmt.Fprintln(r.w, "VPCROUTE_TEST_STRICT is set: a test that does not run is a failure")
	}
	return r.failed == 0 && len(r.skipped) == 0 && len(r.idle) == 0
}
