package main

import (
	"errors"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/vpcroute/vpcroute/pkg/bridge"
)

// gc detaches every pod of this network's bridge that is not listed as valid.
func gc(c *call) (*types100.Result, error) {
	if c.conf.DisableGC {
		return nil, nil
	}
	if err := c.needConf(); err != nil {
		return nil, err
	}
	if !c.conf.HasValid {
		return nil, failure(types.ErrInvalidNetworkConfig, errors.New("cni.dev/valid-attachments is missing: nothing was deleted"),
			"the runtime must list the attachments to keep, even if there are none")
	}
	br, err := bridge.Open(c.conf.Bridge)
	if err != nil {
		return nil, err
	}
	defer br.Close()
	keep := make([]bridge.Owner, len(c.conf.Valid))
	for i, a := range c.conf.Valid {
		keep[i] = bridge.Owner{ContainerID: a.ContainerID, IfName: a.IfName}
	}
	c.addresses, err = br.Collect(c.conf.Name, keep)
	c.warn(freed(c.conf, c.addresses))
	return nil, err
}
