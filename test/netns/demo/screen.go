package main

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/test/netns"
)

// A screen prints the demo, in color only on a terminal.
type screen struct {
	out   io.Writer
	color bool
	steps int
}

func newScreen(f *os.File) *screen {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return &screen{out: f, color: err == nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// The styles, as SGR codes of ECMA-48.
const (
	bold  = "1"
	faint = "2"
	red   = "31"
	green = "32"
)

func (s *screen) styled(style, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// step begins the next part of the demo.
func (s *screen) step(format string, args ...any) {
	s.steps++
	s.title("%d. %s", s.steps, fmt.Sprintf(format, args...))
}

func (s *screen) title(format string, args ...any) {
	fmt.Fprintf(s.out, "\n%s\n", s.styled(bold, fmt.Sprintf(format, args...)))
}

// say prints lines of the current step.
func (s *screen) say(format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		fmt.Fprintln(s.out, "   "+strings.TrimSuffix(line, "\n"))
	}
}

// rows prints lines of tab-separated cells as columns, the first as a head.
func (s *screen) rows(lines ...string) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	_ = w.Flush() // a strings.Builder does not fail
	head, rest, _ := strings.Cut(text.String(), "\n")
	s.say("%s", s.styled(faint, strings.TrimRight(head, " ")))
	for line := range strings.Lines(rest) {
		s.say("%s", strings.TrimRight(line, " \n"))
	}
}

// The widths of the matrix's columns.
const (
	senderWidth = 9
	cellWidth   = 3
)

// abbreviate heads a column: "n1" for node-1, "1a" for pod-1a.
func abbreviate(h *netns.Host) string {
	return strings.Replace(strings.TrimPrefix(h.Name, "pod-"), "node-", "n", 1)
}

// matrix prints who reaches whom, one row per sender, and as whom the receivers
// saw it.
func (s *screen) matrix(hosts []*netns.Host, cells []netns.Cell) {
	head := fmt.Sprintf("%-*s", senderWidth, "from \\ to")
	for _, h := range hosts {
		head += fmt.Sprintf(" %-*s", cellWidth, abbreviate(h))
	}
	s.say("%s", s.styled(faint, head+"  seen as"))
	for _, from := range hosts {
		row := fmt.Sprintf("%-*s", senderWidth, from.Name)
		for _, to := range hosts {
			row += " " + s.verdict(between(cells, from, to))
		}
		s.say("%s  %s", row, strings.Join(sightings(cells, from), " "))
	}
}

// verdict is one place of the matrix: whether every question was answered, and
// under the sender's own address.
func (s *screen) verdict(cells []netns.Cell) string {
	answered, own := 0, 0
	for _, c := range cells {
		if c.Err == nil {
			answered++
		}
		if c.Own() {
			own++
		}
	}
	text, style := "yes", green
	switch {
	case answered == 0:
		text, style = "-", faint
	case own < answered:
		text, style = "NAT", red
	case answered < len(cells):
		text, style = fmt.Sprintf("%d/%d", answered, len(cells)), red
	}
	return s.styled(style, fmt.Sprintf("%-*s", cellWidth, text))
}

func between(cells []netns.Cell, from, to *netns.Host) []netns.Cell {
	var found []netns.Cell
	for _, c := range cells {
		if c.From == from && c.To == to {
			found = append(found, c)
		}
	}
	return found
}

// sightings are the addresses under which a sender was seen by others.
func sightings(cells []netns.Cell, from *netns.Host) []string {
	var seen []netip.Addr
	for _, c := range cells {
		if c.From == from && c.To != from && c.Err == nil && !slices.Contains(seen, c.Sight.Seen) {
			seen = append(seen, c.Sight.Seen)
		}
	}
	slices.SortFunc(seen, netip.Addr.Compare)
	var text []string
	for _, a := range seen {
		text = append(text, a.String())
	}
	return text
}
