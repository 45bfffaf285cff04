package netconf

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

func readDocs(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/cni.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// docs/cni.md describes every field and no other, with its real default.
func TestDocsDescribeEveryField(t *testing.T) {
	docs := readDocs(t)
	rows := regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (.*?) \\| .{10,} \\|$").FindAllStringSubmatch(docs, -1)
	defaults := map[string]string{}
	for _, row := range rows {
		if _, ok := own[row[1]]; ok {
			defaults[row[1]] = strings.Trim(row[2], "`")
		}
	}
	for field := range own {
		if defaults[field] == "" {
			t.Errorf("docs/cni.md has no row for %q", field)
		}
	}
	for field, value := range defaults {
		if value == "required" || value == "none" {
			continue
		}
		with, err := Parse([]byte(`{"podCIDRs": ["10.244.1.0/24"], "` + field + `": ` + value + `}`))
		if err != nil {
			t.Errorf("the default of %s in docs/cni.md: %v", field, err)
		}
		without, err := Parse([]byte(`{"podCIDRs": ["10.244.1.0/24"]}`))
		if err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(with)
		b, _ := json.Marshal(without)
		if string(a) != string(b) {
			t.Errorf("%s of docs/cni.md is not the default of %s", value, field)
		}
	}
}

// Every example in docs/cni.md is one the plugin takes.
func TestDocsExamplesParse(t *testing.T) {
	docs := readDocs(t)
	lists := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(docs, -1)
	if len(lists) < 2 {
		t.Fatalf("%d examples", len(lists))
	}
	for _, l := range lists {
		var list struct {
			Plugins []json.RawMessage `json:"plugins"`
		}
		if err := json.Unmarshal([]byte(l[1]), &list); err != nil || len(list.Plugins) == 0 {
			t.Errorf("%v\n%s", err, l[1])
			continue
		}
		if _, err := Parse(list.Plugins[0]); err != nil {
			t.Errorf("%v\n%s", err, list.Plugins[0])
		}
	}
	wishes := regexp.MustCompile("(?m)^\\| `(?:ips|mac|dns)` \\| `(.*?)` \\|").FindAllStringSubmatch(docs, -1)
	if len(wishes) != 3 {
		t.Fatalf("%d examples of what a runtime may ask for", len(wishes))
	}
	for _, w := range wishes {
		if _, err := Parse([]byte(`{"podCIDRs": ["10.244.1.0/24"], "runtimeConfig": {` + w[1] + `}}`)); err != nil {
			t.Errorf("%s: %v", w[1], err)
		}
	}
}

// The examples in messages are right too.
func TestExamplesOfFieldsParse(t *testing.T) {
	for field, example := range own {
		conf := `{"podCIDRs": ["10.244.1.0/24", "fd00::/64"], "` + field + `": ` + example + `}`
		if _, err := Parse([]byte(conf)); err != nil {
			t.Errorf("%s: %v", conf, err)
		}
	}
}
