package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// licensesPath is the folder of an image that holds the licence texts, by module.
const licensesPath = "usr/share/licenses"

// legal are the names of files that have to go with a program: licences and
// notices, and the statements that some modules make about patents and authors.
var legal = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|copyright|notices?|patents)([._-].*)?$`)

// A linkedPackage is what "go list -json" says of a package that a program is
// built from.
type linkedPackage struct {
	Dir, ImportPath string
	Standard        bool
	Module          *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// licenses returns the licence texts of everything that is linked into a
// program: Go's own, and, of each module, those in the module's root and in
// the folders from there to each package that is used.
func (o options) licenses(p program, on platform) ([]file, error) {
	out, err := o.goTool(p, on, "list", "-deps", "-json=Dir,ImportPath,Standard,Module", p.pkg)
	if err != nil {
		return nil, err
	}
	goLicense, err := os.ReadFile(filepath.Join(runtime.GOROOT(), "LICENSE")) //nolint:staticcheck // "go run" sets it
	if err != nil {
		return nil, err
	}
	texts := map[string]file{"go": {path.Join(licensesPath, "go", "LICENSE"), 0o644, goLicense}}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg linkedPackage
		if err := d.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read the answer of go list: %w", err)
		}
		if pkg.Standard {
			continue
		}
		if err := pkg.collect(texts); err != nil {
			return nil, err
		}
	}
	return slices.Collect(maps.Values(texts)), nil
}

// collect adds the texts that hold for a package, by their path in the image.
func (p linkedPackage) collect(texts map[string]file) error {
	found := false
	for dir := p.Dir; strings.HasPrefix(dir, p.Module.Dir); dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || !legal.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
				continue
			}
			content, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			below := filepath.ToSlash(strings.TrimPrefix(dir, p.Module.Dir))
			name := path.Join(licensesPath, p.Module.Path, below, e.Name())
			texts[name], found = file{name, 0o644, content}, true
		}
	}
	if !found {
		return fmt.Errorf("package %s of %s has no licence text: what cannot be passed on does not belong into an image", p.ImportPath, p.Module.Path)
	}
	return nil
}
