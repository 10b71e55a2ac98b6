package validate

import (
	"path"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) volumes(at *field.Path) {
	c.sources = map[string]*v1.VolumeSource{}
	for i := range c.spec.Volumes {
		v, to := &c.spec.Volumes[i], at.Index(i)
		c.requiredName(to.Child("name"), v.Name, "give the volume a name", isLabel)
		if _, twice := c.sources[v.Name]; twice {
			c.add(field.Duplicate(to.Child("name"), v.Name))
		}
		c.sources[v.Name] = &v.VolumeSource
		switch n := sources(v.VolumeSource); {
		case n == 0:
			c.required(to, "must specify a volume type")
		case n > 1:
			c.forbidden(to, "may have only one source; remove the others")
		default:
			c.volume(to, &v.VolumeSource)
		}
	}
}

func (c *checker) volume(at *field.Path, src *v1.VolumeSource) {
	switch {
	case src.EmptyDir != nil:
		if limit := src.EmptyDir.SizeLimit; limit != nil && limit.Sign() < 0 {
			c.forbidden(at.Child("emptyDir", "sizeLimit"), "must not be negative")
		}
	case src.HostPath != nil:
		c.hostPath(at.Child("hostPath"), src.HostPath)
	case src.DownwardAPI != nil:
		c.mode(at.Child("downwardAPI", "defaultMode"), src.DownwardAPI.DefaultMode)
		c.downward(at.Child("downwardAPI", "items"), src.DownwardAPI.Items, sets.New[string]())
	case src.Projected != nil:
		c.projected(at.Child("projected"), src.Projected)
	case src.Image != nil:
		if src.Image.Reference == "" {
			c.required(at.Child("image", "reference"), "name the image")
		}
		if src.Image.PullPolicy != "" {
			oneOf(c, at.Child("image", "pullPolicy"), src.Image.PullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
		}
	case src.GitRepo != nil:
		if src.GitRepo.Repository == "" {
			c.required(at.Child("gitRepo", "repository"), "name the repository")
		}
		c.below(at.Child("gitRepo", "directory"), src.GitRepo.Directory)
	default:
		c.network(at, src)
	}
}

func (c *checker) hostPath(at *field.Path, h *v1.HostPathVolumeSource) {
	if h.Path == "" {
		c.required(at.Child("path"), "name the path on the host")
	}
	c.noDotDot(at.Child("path"), h.Path)
	optionalOneOf(c, at.Child("type"), h.Type, v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory,
		v1.HostPathFileOrCreate, v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev)
}

func (c *checker) mode(at *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

// downward checks the files of a downward API volume; taken are the paths of
// the whole volume.
func (c *checker) downward(at *field.Path, items []v1.DownwardAPIVolumeFile, taken sets.Set[string]) {
	for i := range items {
		item, to := &items[i], at.Index(i)
		c.file(to.Child("path"), item.Path, taken)
		c.mode(to.Child("mode"), item.Mode)
		switch {
		case item.FieldRef != nil && item.ResourceFieldRef != nil:
			c.invalid(to, "", "fieldRef and resourceFieldRef must not stand together; remove one of them")
		case item.FieldRef != nil:
			c.fieldRef(to.Child("fieldRef"), item.FieldRef, func(path string) bool {
				return path == "metadata.labels" || path == "metadata.annotations"
			})
		case item.ResourceFieldRef != nil:
			c.resourceRef(to.Child("resourceFieldRef"), item.ResourceFieldRef, true)
		default:
			c.required(to, "one of fieldRef and resourceFieldRef is required")
		}
	}
}

// file checks the path of a file within a volume.
func (c *checker) file(at *field.Path, name string, taken sets.Set[string]) {
	if name == "" {
		c.required(at, "name the file")
		return
	}
	c.below(at, name)
	if len(name) > 1 && name[:2] == ".." && path.Clean(name)[:2] == ".." {
		c.invalid(at, name, "must not start with '..'")
	}
	if taken.Has(name) {
		c.invalid(at, name, "is another file's path in this volume")
	}
	taken.Insert(name)
}

func (c *checker) projected(at *field.Path, p *v1.ProjectedVolumeSource) {
	c.mode(at.Child("defaultMode"), p.DefaultMode)
	taken := sets.New[string]()
	for i := range p.Sources {
		src, to := &p.Sources[i], at.Child("sources").Index(i)
		switch n := sources(*src); {
		case n > 1:
			c.forbidden(to, "may have only one source; remove the others")
		case src.DownwardAPI != nil:
			c.downward(to.Child("downwardAPI", "items"), src.DownwardAPI.Items, taken)
		}
	}
}

// network checks the volumes of network file systems: what names the thing to
// mount must be there.
func (c *checker) network(at *field.Path, src *v1.VolumeSource) {
	switch {
	case src.NFS != nil:
		c.need(at.Child("nfs"), src.NFS, "server", "path")
		if src.NFS.Path != "" && !path.IsAbs(src.NFS.Path) {
			c.invalid(at.Child("nfs", "path"), src.NFS.Path, "must be an absolute path")
		}
	case src.ISCSI != nil:
		c.need(at.Child("iscsi"), src.ISCSI, "targetPortal", "iqn")
		if src.ISCSI.Lun < 0 || src.ISCSI.Lun > 255 {
			c.named(at.Child("iscsi", "lun"), "", validation.IsInRange(int(src.ISCSI.Lun), 0, 255))
		}
	case src.FC != nil:
		if (len(src.FC.TargetWWNs) == 0) == (len(src.FC.WWIDs) == 0) {
			c.required(at.Child("fc"), "name either targetWWNs or wwids")
		} else if len(src.FC.TargetWWNs) > 0 && src.FC.Lun == nil {
			c.required(at.Child("fc", "lun"), "targetWWNs need it")
		}
	case src.FlexVolume != nil:
		c.need(at.Child("flexVolume"), src.FlexVolume, "driver")
	case src.AzureDisk != nil:
		c.need(at.Child("azureDisk"), src.AzureDisk, "diskName", "diskURI")
	case src.GCEPersistentDisk != nil:
		c.need(at.Child("gcePersistentDisk"), src.GCEPersistentDisk, "pdName")
	case src.AWSElasticBlockStore != nil:
		c.need(at.Child("awsElasticBlockStore"), src.AWSElasticBlockStore, "volumeID")
	case src.Cinder != nil:
		c.need(at.Child("cinder"), src.Cinder, "volumeID")
	case src.VsphereVolume != nil:
		c.need(at.Child("vsphereVolume"), src.VsphereVolume, "volumePath")
	case src.PhotonPersistentDisk != nil:
		c.need(at.Child("photonPersistentDisk"), src.PhotonPersistentDisk, "pdID")
	case src.RBD != nil:
		c.need(at.Child("rbd"), src.RBD, "monitors", "image")
	case src.CephFS != nil:
		c.need(at.Child("cephfs"), src.CephFS, "monitors")
	case src.Quobyte != nil:
		c.need(at.Child("quobyte"), src.Quobyte, "registry", "volume")
	case src.ScaleIO != nil:
		c.need(at.Child("scaleIO"), src.ScaleIO, "gateway", "system", "volumeName")
	}
}

// need checks that fields, by their names in JSON, are not empty.
func (c *checker) need(at *field.Path, src any, names ...string) {
	v := reflect.ValueOf(src).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("json")
		for _, name := range names {
			if (tag == name || len(tag) > len(name) && tag[:len(name)+1] == name+",") && v.Field(i).IsZero() {
				c.required(at.Child(name), "it is needed to mount the volume")
			}
		}
	}
}
