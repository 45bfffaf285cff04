// Command images builds the product's container images: one OCI archive per
// image, for several platforms, out of nothing but Go modules. It asks neither a
// registry nor a Docker daemon, takes nothing from the machine it runs on, and
// writes the same bytes each time it is given the same sources.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = o.write()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		return 1
	}
	return 0
}

// options are the flags as they were meant.
type options struct {
	source     string
	out        string
	repository string
	version    string
	platforms  []platform
	images     []image
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("images", flag.ContinueOnError)
	f.StringVar(&o.source, "source", "..", "`folder` of the product's module")
	f.StringVar(&o.out, "out", "../bin/images", "`folder` that the archives are written to")
	f.StringVar(&o.repository, "repository", "ghcr.io/vpcroute", "`prefix` of the images' names")
	f.StringVar(&o.version, "version", "dev", "`tag` of the images, and what the programs say of themselves")
	platforms := f.String("platforms", "linux/amd64,linux/arm64", "comma-separated `list` of what to build for")
	only := f.String("only", "", "`name` of the one image to build; all when empty")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	for text := range strings.SplitSeq(*platforms, ",") {
		p, err := parsePlatform(text)
		o.platforms, errs = append(o.platforms, p), append(errs, err)
	}
	o.images = slices.DeleteFunc(slices.Clone(images), func(i image) bool { return *only != "" && i.name != *only })
	if len(o.images) == 0 {
		errs = append(errs, fmt.Errorf("-only is %q: want one of the images, for example %s", *only, images[0].name))
	}
	return o, errors.Join(errs...)
}

func (o options) write() error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, i := range o.images {
		a := archive{name: o.repository + "/" + i.name, tag: o.version}
		for _, p := range o.platforms {
			files, err := i.files(o, p)
			if err != nil {
				return fmt.Errorf("image %s for %s: %w", i.name, p, err)
			}
			if err := a.add(p, i, files); err != nil {
				return fmt.Errorf("image %s for %s: %w", i.name, p, err)
			}
		}
		path := filepath.Join(o.out, i.name+".tar")
		content, err := a.bytes()
		if err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
		fmt.Printf("%s: %s:%s, %.1f MB\n", path, a.name, a.tag, float64(len(content))/1e6)
	}
	return nil
}
