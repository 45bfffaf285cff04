package report_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/bench/report"
)

func TestFigures(t *testing.T) {
	figures := []report.Figure{
		report.New("ADD", "ms", 5, "bridge", 20).AtMost(0.35),
		report.New("DEL", "ms", 20, "bridge", 20).AtMost(0.9),
		report.New("lonely", "ms", 1, "nobody", 0).AtMost(1),
		report.New("no goal", "MB", 3, "bridge", 4),
		report.New("speed", "MB/s", 3, "bridge", 4).AtLeast(0.5),
		report.New("pace", "1/s", 1, "bridge", 4).AtLeast(0.5),
		report.Within("writes", "", 0, 0),
		report.Within("lists", "", 13, 12),
	}
	var table strings.Builder
	if err := report.Table(&table, figures); err != nil {
		t.Fatal(err)
	}
	want := `FIGURE   UNIT  OURS   PEER   AGAINST    RATIO  GOAL    MET
ADD      ms    5.00   20.00  bridge     0.25   ≤ 0.35  yes
DEL      ms    20.00  20.00  bridge     1.00   ≤ 0.90  no
lonely   ms    1.00   0.00   nobody     0.00   ≤ 1.00  no
no goal  MB    3.00   4.00   bridge     0.75   -       -
speed    MB/s  3.00   4.00   bridge     0.75   ≥ 0.50  yes
pace     1/s   1.00   4.00   bridge     0.25   ≥ 0.50  no
writes         0.00   0.00   the limit  0.00   ≤ 1.00  yes
lists          13.00  12.00  the limit  1.08   ≤ 1.00  no
`
	if table.String() != want {
		t.Errorf("the table is\n%s\nwant\n%s", table.String(), want)
	}

	file := filepath.Join(t.TempDir(), "out", "x.json")
	if err := report.Save(file, figures); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []struct {
		Name        string
		Ratio, Goal *float64
		Met         *bool
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 8 || got[0].Name != "ADD" || *got[0].Ratio != 0.25 || *got[0].Goal != 0.35 || !*got[0].Met || *got[1].Met || got[3].Met != nil {
		t.Errorf("saved as\n%s", text)
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 3}} {
		if got := report.Median(tc.in); got != tc.want {
			t.Errorf("Median(%v) = %v, want %v", tc.in, got, tc.want)
		}
	}
}
