package main

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// A platform is what an image runs on, as Go and the OCI image specification
// both name it.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

func parsePlatform(text string) (platform, error) {
	os, arch, ok := strings.Cut(text, "/")
	if !ok || os != "linux" || arch == "" || strings.Contains(arch, "/") {
		return platform{}, fmt.Errorf("-platforms has %q: want linux/ and an architecture, for example linux/arm64", text)
	}
	return platform{os, arch}, nil
}

// An image is what goes into one and how it starts.
type image struct {
	name       string
	title      string
	programs   []program
	entrypoint string
	// user is a number, since there is no file that would resolve a name; a
	// kubelet can then tell that it is not root.
	user string
	// roots says whether the image's program speaks to servers on the internet.
	roots bool
}

// A program is a file of an image that is built.
type program struct {
	// module is the folder of the module that pins it, in the product's tree.
	module string
	pkg    string
	path   string
}

const plugins = "github.com/containernetworking/plugins/plugins/"

var images = []image{
	{
		name:       "route-controller",
		title:      "Keeps a VPC's route table in step with a cluster's Nodes",
		programs:   []program{{".", "./cmd/route-controller", "route-controller"}},
		entrypoint: "/route-controller",
		user:       "65532:65532",
		roots:      true,
	},
	{
		name:  "node-agent",
		title: "Keeps a node fit for the vpcroute CNI plugin",
		programs: []program{
			{".", "./cmd/node-agent", "node-agent"},
			{".", "./cmd/cni", "opt/vpcroute/bin/vpcroute"},
			{"images", plugins + "meta/portmap", "opt/vpcroute/bin/portmap"},
			{"images", plugins + "meta/bandwidth", "opt/vpcroute/bin/bandwidth"},
			{"images", plugins + "main/loopback", "opt/vpcroute/bin/loopback"},
		},
		entrypoint: "/node-agent",
		// It writes the host's folders, which are root's.
		user: "0:0",
	},
}

// A file is one of an image. Its name is relative to the image's root.
type file struct {
	name    string
	mode    int64
	content []byte
}

// files builds and collects all that is in an image.
func (i image) files(o options, p platform) ([]file, error) {
	var files []file
	for _, program := range i.programs {
		content, err := o.build(program, p)
		if err != nil {
			return nil, err
		}
		texts, err := o.licenses(program, p)
		if err != nil {
			return nil, err
		}
		files = append(append(files, file{program.path, 0o755, content}), texts...)
	}
	if i.roots {
		files = append(files, file{rootsPath, 0o644, roots()})
		text, err := o.rootsLicense()
		if err != nil {
			return nil, err
		}
		files = append(files, text)
	}
	return files, nil
}

// at is the path of something in the product's tree.
func (o options) at(elements ...string) string {
	return filepath.Join(o.source, filepath.FromSlash(path.Join(elements...)))
}
