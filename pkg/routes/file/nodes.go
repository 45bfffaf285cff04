package file

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/vpcroute/vpcroute/pkg/routes"
)

const (
	// watchEvery is how often the file is looked at.
	watchEvery = 200 * time.Millisecond
	// quiet is how long a file that was written in place has to stay the same
	// before it is believed; one that was renamed into place is whole.
	quiet = 600 * time.Millisecond
)

// ReadNodes reads a Node list once.
func ReadNodes(path string) ([]routes.Node, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("nodes file: %w", err)
	}
	nodes, err := ParseNodes(text)
	if err != nil {
		return nil, fmt.Errorf("nodes file %s: %w", path, err)
	}
	return nodes, nil
}

// ParseNodes reads Nodes in YAML or JSON: a v1 List, a NodeList, a plain list,
// one Node, or several YAML documents of these. The error names everything that
// is wrong. No Nodes at all are an error, since an empty cluster needs no
// controller and a broken export looks just so.
func ParseNodes(text []byte) ([]routes.Node, error) {
	documents, err := split(text)
	if err != nil {
		return nil, err
	}
	var nodes []routes.Node
	var errs []error
	seen := map[string]bool{}
	for _, document := range documents {
		items, err := items(document)
		if err != nil {
			errs = append(errs, err)
		}
		for _, item := range items {
			n, err := parseNode(item)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if seen[n.Name] {
				errs = append(errs, fmt.Errorf("metadata.name %q occurs twice: names of Nodes are unique", n.Name))
			}
			seen[n.Name] = true
			nodes = append(nodes, n)
		}
	}
	if len(errs) == 0 && len(nodes) == 0 {
		errs = append(errs, errors.New("it holds no Nodes: write a list of Node objects, as \"kubectl get nodes -o yaml\" prints it"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return nodes, nil
}

// split turns the documents of a YAML or JSON text into JSON.
func split(text []byte) ([]json.RawMessage, error) {
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
		return splitJSON(trimmed)
	}
	var documents []json.RawMessage
	for _, part := range separator.Split(string(text), -1) {
		document, err := yaml.YAMLToJSONStrict([]byte(part))
		if err != nil {
			return nil, fmt.Errorf("it is not YAML: %w", err)
		}
		if string(document) != "null" {
			documents = append(documents, document)
		}
	}
	return documents, nil
}

var separator = regexp.MustCompile(`(?m)^---[ \t]*(?:#.*)?$`)

func splitJSON(text []byte) ([]json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	var documents []json.RawMessage
	for {
		var document json.RawMessage
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return documents, nil
		case err != nil:
			return nil, fmt.Errorf("it is not JSON at byte %d: %w", decoder.InputOffset(), err)
		}
		documents = append(documents, document)
	}
}

// items returns the Nodes of one document.
func items(document json.RawMessage) ([]json.RawMessage, error) {
	if len(document) > 0 && document[0] == '[' {
		var list []json.RawMessage
		err := json.Unmarshal(document, &list)
		return list, err
	}
	var object struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(document, &object); err != nil {
		return nil, fmt.Errorf("a document is neither a list nor a Node: %.60q", document)
	}
	switch {
	case object.APIVersion != "v1":
		return nil, fmt.Errorf("apiVersion is %q: want \"v1\", with kind List, NodeList or Node", object.APIVersion)
	case object.Kind == "List", object.Kind == "NodeList":
		return object.Items, nil
	case object.Kind == "Node":
		return []json.RawMessage{document}, nil
	}
	return nil, fmt.Errorf("kind is %q: want List, NodeList or Node", object.Kind)
}

// parseNode reads one Node, strictly: a field that is not one of a Node's is
// misspelled. Only in the status are unknown ones left alone, where a newer
// Kubernetes adds its own.
func parseNode(item json.RawMessage) (routes.Node, error) {
	var object corev1.Node
	strict, err := kjson.UnmarshalStrict(item, &object)
	if err != nil {
		return routes.Node{}, fmt.Errorf("a Node cannot be read: %w", err)
	}
	name := object.Name
	errs := unknownFields(strict, name)
	if object.Kind != "" && object.Kind != "Node" {
		errs = append(errs, fmt.Errorf("kind of item %q is %q: want Node", name, object.Kind))
	}
	if name == "" {
		errs = append(errs, fmt.Errorf("metadata.name of a Node is empty, for example \"node-1\": %.60q", item))
	}
	n, err := routes.FromObject(&object)
	if err != nil {
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

func unknownFields(strict []error, node string) []error {
	var errs []error
	for _, err := range strict {
		if strings.Contains(err.Error(), `unknown field "status.`) {
			continue
		}
		errs = append(errs, fmt.Errorf("node %q: %w: see \"kubectl explain node\" for its name, for example spec.podCIDRs", node, err))
	}
	return errs
}

// A Watcher follows a nodes file.
type Watcher struct {
	// Path is the file.
	Path string
	// Nodes is called with every good list that differs from the one before.
	Nodes func([]routes.Node)
	// Broken is called when the file cannot be believed, once for each cause.
	Broken func(error)
}

// Run follows the file until ctx ends.
func (w Watcher) Run(ctx context.Context) {
	var followed follower
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		w.look(&followed, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// A follower is what is known about a file that is being followed.
type follower struct {
	seen    stamp     // at the last look
	changed time.Time // when it was first seen so
	read    stamp     // of the file when it was last read
	good    []byte    // the last good text
	broken  string
}

// A stamp changes whenever a file does.
type stamp struct {
	inode   uint64
	size    int64
	written time.Time
	absent  bool
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{absent: true}
	}
	s := stamp{size: info.Size(), written: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

func (w Watcher) look(f *follower, now time.Time) {
	is := stampOf(w.Path)
	if is != f.seen {
		f.seen, f.changed = is, now
	}
	inPlace := is.inode == f.read.inode
	if is == f.read || inPlace && !f.read.written.IsZero() && now.Sub(f.changed) < quiet {
		return
	}
	f.read = is
	text, err := os.ReadFile(w.Path)
	if err == nil && stampOf(w.Path) != is {
		f.read = stamp{inode: is.inode, written: time.Unix(1, 0)} // changed while being read: look again
		return
	}
	if err == nil && string(text) == string(f.good) && f.broken == "" {
		return
	}
	nodes, err := w.judge(f, text, err)
	if err != nil {
		if err.Error() != f.broken {
			f.broken = err.Error()
			w.Broken(err)
		}
		return
	}
	f.good, f.broken = text, ""
	w.Nodes(nodes)
}

func (w Watcher) judge(f *follower, text []byte, err error) ([]routes.Node, error) {
	if err != nil {
		return nil, fmt.Errorf("nodes file: %w", err)
	}
	if endsInLine(f.good) && !endsInLine(text) && len(text) > 0 && len(text) < len(f.good) {
		return nil, fmt.Errorf("nodes file %s: it stops in the middle of a line, so it is probably half-written", w.Path)
	}
	nodes, err := ParseNodes(text)
	if err != nil {
		return nil, fmt.Errorf("nodes file %s: %w", w.Path, err)
	}
	return nodes, nil
}

func endsInLine(text []byte) bool { return bytes.HasSuffix(text, []byte("\n")) }
